package delivery

import (
	"time"

	"github.com/tryst-rdma/tryst/transport"
)

// Unreached returns the peers that receives wait for, or have given up, until the next receive
// reaches them.
func (r *Requester) Unreached() (all []transport.Unreached) {
	r.mu.Lock()
	peers := make([]*peer, 0, len(r.peers))
	for _, p := range r.peers {
		peers = append(peers, p)
	}
	r.mu.Unlock()
	for _, p := range peers {
		p.mu.Lock()
		if p.machine.conn != connUp {
			all = append(all, transport.Unreached{Task: p.task, Seeking: p.machine.conn == connReaching || p.machine.seeks, Err: p.missed})
		}
		p.mu.Unlock()
	}
	return all
}

// RequesterState is a process that sends requests here, or did.
type RequesterState struct {
	transport.Process
	// Connected is set while it has a connection, over any transport. Since is when that
	// began or ended.
	Connected bool
	Since     time.Time
}

// Requesters returns the processes that send requests, or did recently, without the peers that
// are not Tryst, which do not tell their names.
func (c *ResponseCache) Requesters() []RequesterState {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]RequesterState, 0, len(c.table.requesters))
	for _, k := range c.table.requesters {
		if k.incarnation == 0 {
			continue
		}
		s := RequesterState{Process: transport.Process{Name: k.name, Incarnation: k.incarnation}, Connected: k.connected(), Since: k.since}
		if s.Connected {
			s.Since = k.up
		}
		all = append(all, s)
	}
	return all
}
