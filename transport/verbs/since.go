package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/handshake"
)

// since is when the state of a peer, as Connections reports it, began. peer.mu guards it.
type since struct {
	verbs   bool
	verbsAt time.Time // when verbs changed; zero before a channel was up
	state   handshake.State
	stateAt time.Time
}

// noteState is called after each change of the machine and of active. Called with mu held.
func (p *peer) noteState() {
	s := &p.since
	if verbs := p.active != nil; s.verbs != verbs {
		s.verbs, s.verbsAt = verbs, time.Now()
	}
	if state, _ := p.shown().machine.State(); s.state != state || s.stateAt.IsZero() {
		s.state, s.stateAt = state, time.Now()
	}
}
