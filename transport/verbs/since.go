package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/transport/verbs/internal/handshake"
)

// since is when the state of a peer, as Connections reports it, began. peer.mu guards it.
type since struct {
	at    time.Time
	verbs bool
	state handshake.State
}

// noteState is called after each change of the machine and of active. Called with mu held.
func (p *peer) noteState() {
	state, _ := p.machine.State()
	if verbs := p.active != nil; p.since.at.IsZero() || p.since.verbs != verbs || p.since.state != state {
		p.since = since{time.Now(), verbs, state}
	}
}
