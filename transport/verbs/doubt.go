package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// An idle channel posts nothing, so a peer that was killed while its channel was idle would count as
// connected for ever, and its channel would keep its memory. Its gRPC connections end with it, or by
// TCP's keepalive when its host is gone.

// CheckPeer finds out whether a peer is still there: a gRPC connection with it has ended. Its channels
// probe it, which ends them if it is gone. It does not wait for the result.
func (t *RdmaRemoteRendezvous) CheckPeer(task cluster.Task) {
	t.mu.Lock()
	p := t.peers[task]
	t.mu.Unlock()
	if p == nil {
		return
	}
	for _, l := range p.existing() {
		l.doubt()
	}
}

// doubt makes the link probe its peer although nothing is outstanding.
func (l *link) doubt() {
	now := time.Now()
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		return
	}
	l.doubted = now
	l.machine.Doubt(now)
	l.run(now)
}

// watches reports whether the link has a reason to check its peer while nothing is outstanding.
// Called with mu held, in each tick.
func (l *link) watches(now time.Time) bool {
	if l.doubted.IsZero() {
		return l.peer.transport.opts.Cache.Holds(l.requester)
	}
	if now.Sub(l.doubted) >= doubtTime {
		l.doubted = time.Time{}
	}
	return true
}
