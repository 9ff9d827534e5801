package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// How receives go over to a better channel (PROTOCOL.md section 9). Both channels are up:
//
//  1. New receives of this side take the better one (peer.setActive).
//  2. Requests of the peer that have no value yet end with an error (transport.Moved), upon which
//     the peer sends them again there; so do requests that still arrive. The peer does the same
//     with the requests of this side.
//  3. Contents end where they began.
//  4. When nothing is under way on the old channel, the side that sees it first closes it.

// replace begins to replace this channel by a better one. why is the reason.
func (l *link) replace(why error) {
	l.mu.Lock()
	if l.state != linkOpen || l.replaced != nil {
		l.mu.Unlock()
		return
	}
	now := time.Now()
	l.replaced = why
	l.machine.Redirect(now, transport.Moved(why))
	l.run(now)
}

// isReplaced reports whether a better channel replaces this one.
func (l *link) isReplaced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.replaced != nil
}

// restore takes replace back: the better channel has ended.
func (l *link) restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.replaced = nil
}

// closeReplaced closes a channel that is replaced and idle. It reports whether that has passed
// an event to the machine. Called with mu held.
func (l *link) closeReplaced(now time.Time) bool {
	if l.replaced == nil || l.state != linkOpen || !l.machine.Idle() || len(l.outbox) > 0 || l.outboxBusy {
		return false
	}
	l.byes = true
	l.machine.Bye(now, status.WithoutQPNs(status.From(l.replaced).Message()))
	return true
}

// stays reports whether the link is open, and this side does not close it.
func (l *link) stays() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.state == linkOpen && !l.byes
}
