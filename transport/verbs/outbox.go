package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// Calls out of the package, which completions cause, wait in the outbox of a link until mu is
// unlocked. One goroutine at a time carries it out in order.

// outgoing is a call out of the package, which runs without mu.
type outgoing struct {
	kind    outKind
	request transport.Request
	id      attemptID
	buf     *tensor.Buffer
	ids     []uint64
	left    uint64
	rest    func()
}

type outKind uint8

const (
	outLeft    outKind = iota // close the generations that the peer has left, before its request is served
	outRequest                // pass request to the response cache
	outDetach                 // the peer does not wait for the response to id any more
	outRelease                // release buf
	outAck                    // the peer has acknowledged ids
	outCancel                 // finish a cancel: call rest
	outRest                   // finish a request: call rest
	outUp                     // HELLO has arrived
)

// flushOutbox runs the outbox in order, and what other goroutines add meanwhile. One
// goroutine at a time does so; others return at once. It is called with mu held and unlocks
// it.
func (l *link) flushOutbox() {
	if l.outboxBusy || len(l.outbox) == 0 {
		l.mu.Unlock()
		return
	}
	l.outboxBusy = true
	batch := l.outbox
	l.outbox = nil
	l.mu.Unlock()
	l.runOutgoing(batch, 0, true)
}

// runOutgoing runs batch[from:] and then what was added to the outbox meanwhile. polls says
// that the caller may be the polling goroutine. It must not finish a cancel: a value that
// goes back to its key may meet a local receiver, whose callback must not run while polling.
// So another goroutine runs the cancel and all that follows, in order.
func (l *link) runOutgoing(batch []outgoing, from int, polls bool) {
	for {
		for i := from; i < len(batch); i++ {
			if polls && batch[i].kind == outCancel {
				l.runOutgoingAsync(batch, i)
				return
			}
			l.runOne(&batch[i])
		}
		l.mu.Lock()
		if len(l.outbox) == 0 {
			l.outboxBusy = false
			if l.replaced != nil { // it may be idle by now
				l.run(time.Now())
			} else {
				l.mu.Unlock()
			}
			return
		}
		batch, from, l.outbox = l.outbox, 0, nil
		l.mu.Unlock()
	}
}

// runOutgoingAsync is runOutgoing on a goroutine that does not poll.
func (l *link) runOutgoingAsync(batch []outgoing, from int) {
	l.async(func() { l.runOutgoing(batch, from, false) })
}

// runOne makes one call out of the package.
func (l *link) runOne(o *outgoing) {
	cache := l.peer.transport.opts.Cache
	switch o.kind {
	case outLeft:
		l.peer.closeLeft(l.requester.Incarnation, o.left)
	case outRequest:
		resp, ok, rest := cache.RequestNow(l, o.request)
		if rest != nil {
			rest()
		}
		if ok {
			l.Reply(o.request.ID, o.request.Attempt, resp)
		}
	case outDetach:
		cache.Detach(l, l.requester, o.id.id, o.id.attempt)
	case outRelease:
		l.peer.transport.release(o.buf)
	case outAck:
		cache.Ack(l.requester, o.ids)
	case outCancel, outRest:
		o.rest()
	case outUp:
		l.peer.linkUp(l)
	}
}

// async runs f on another goroutine, since f would block the polling one.
func (l *link) async(f func()) { l.peer.transport.work.Go(f) }
