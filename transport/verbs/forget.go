package verbstransport

import (
	"errors"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
)

// errForgotten means that the record of a peer was dropped; its task may have a new one.
var errForgotten = errors.New("the peer has been forgotten")

// forget drops the records of peers that have no address, no channel and no handshake under
// way. Each client process has its own name, and clients come and go for as long as a server
// runs. Their counts are kept in t.forgotten. Called with t.mu held.
func (t *RdmaRemoteRendezvous) forget() {
	for _, p := range t.peers {
		if p.client.Load() && p.retire() {
			t.dropLocked(p)
		}
	}
}

// dropLocked drops the record of a peer, and keeps its counts. Called with t.mu held.
func (t *RdmaRemoteRendezvous) dropLocked(p *peer) {
	delete(t.peers, p.task)
	if p.client.Load() {
		t.clients.release(p.address)
	}
	if t.forgotten == nil {
		t.forgotten = &Connection{Task: cluster.Task{Job: cluster.ClientJob}}
	}
	k := p.statusWithCounts()
	t.forgotten.Stats.add(k.Stats)
	t.forgotten.Poll.Add(k.Poll)
}

// checkClients returns an error if there is no space for the record of another peer without
// an address in the cluster, which has called from that address. Called with t.mu held.
func (t *RdmaRemoteRendezvous) checkClients(address string) error {
	const what = "peers that are in no cluster"
	if t.clients.check(address, what) == nil {
		return nil
	}
	t.forget()
	return t.clients.check(address, what)
}

// retire ends a record that has no channel and no handshake under way. It returns false for
// any other record.
func (p *peer) retire() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.routes {
		state, _ := r.machine.State()
		if state != handshake.Down || r.running || len(r.actions)+len(r.links)+len(r.requests) > 0 {
			return false
		}
	}
	for _, r := range p.routes {
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	if p.timer != nil {
		p.timer.Stop()
	}
	p.gone = true
	return true
}
