package verbstransport

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
	"github.com/tryst-rdma/tryst/verbs"
)

// How a link ends (ARCHITECTURE.md section 6, rule b).

// causeRank orders the sources of the error that ends a channel. The lower the rank, the
// more specific the error.
type causeRank uint8

const (
	rankCause   causeRank = iota // a completion with a specific status, the state machine, the peer
	rankEvent                    // an asynchronous event of the queue pair
	rankFlushed                  // a flushed completion: the queue pair broke before
)

// leave leaves the channel because of err. It may be called in any state and from any
// goroutine, and does not block. If the channel is being left already for flushed completions alone,
// err is their cause.
func (l *link) leave(err error) {
	l.mu.Lock()
	if l.state != linkOpen {
		if l.state == linkLeaving && l.rank == rankFlushed {
			l.err, l.rank = err, rankEvent
			l.drained.Broadcast()
		}
		l.mu.Unlock()
		return
	}
	l.machine.Leave(time.Now(), err)
	l.startLeaving(err)
	l.run(time.Now())
}

// qpEvent leaves the channel because of an asynchronous event of a queue pair: a local
// error, or an invalid request of the peer. The flushed completions come before or after
// the event.
func (l *link) qpEvent(e verbs.AsyncEvent) {
	l.mu.Lock()
	l.fail(time.Now(), rankEvent, status.Errorf(status.Unavailable, "%v: QP %v: %v: %s", l, e.QPN, e.Kind, e.Kind.Cause()))
	l.run(time.Now())
}

// fail leaves the channel because of err. When the channel is being left already, err
// replaces an error of a higher rank. Called with mu held.
func (l *link) fail(now time.Time, r causeRank, err error) {
	switch {
	case l.state == linkOpen:
		l.rank = r
		l.machine.Leave(now, err)
		l.startLeaving(err)
	case l.state == linkLeaving && r < l.rank:
		l.err, l.rank = err, r
		l.drained.Broadcast()
	}
}

// startLeaving starts the teardown. Called with mu held.
func (l *link) startLeaving(err error) {
	if l.state != linkOpen {
		return
	}
	l.state, l.err = linkLeaving, err
	l.async(l.tearDown)
}

// tearDown implements rule b of ARCHITECTURE.md section 6:
//
//  1. Nothing is posted any more.
//  2. All queue pairs go to ERR.
//  3. All posted work requests complete; messages that arrived intact are handled.
//  4. The queue pairs are destroyed.
//  5. Attempts that have not ended are lost, and their destinations are released.
//
// Step 5 is last for two reasons. The peer's writes can land until a queue pair is
// destroyed, so a destination must not be reused before. And the response to a receive may
// still complete until then, so the receive must not be requested again before.
func (l *link) tearDown() {
	p, t := l.peer, l.peer.transport
	p.linkDown(l)
	wait := true
	l.mu.Lock()
	for i, r := range l.rails {
		if err := l.breakRail(i, r); err != nil {
			wait = false // nothing will be flushed, so there is nothing to wait for
		}
	}
	if wait {
		timeout := time.AfterFunc(drainTime, func() {
			l.mu.Lock()
			wait = false
			l.mu.Unlock()
			l.drained.Broadcast()
		})
		for wait && !l.isDrained() {
			l.drained.Wait()
		}
		timeout.Stop()
	}
	known := l.awaitCause()
	l.mu.Unlock()
	if !known {
		t.checkDevice(l.port) // its removal flushes first, and is reported later
	}
	l.destroy()
	l.mu.Lock()
	l.state, l.rank = linkGone, rankCause // the error is final
	if l.timer != nil {
		l.timer.Stop()
	}
	l.machine.Destroyed(time.Now())
	unconfirmed := l.batches
	l.batches = nil
	l.run(time.Now())
	for _, b := range unconfirmed {
		b.end(l.lostErr())
	}
	t.logClose("account", l.account.Close())
	p.linkGone(l, l.err, true)
}

// awaitCause waits up to causeTime for a more specific error than a flushed completion, and reports
// whether there is one. Some devices never report one. Called with mu held.
func (l *link) awaitCause() (known bool) {
	late := false
	timeout := time.AfterFunc(causeTime, func() {
		l.mu.Lock()
		late = true
		l.mu.Unlock()
		l.drained.Broadcast()
	})
	for l.rank == rankFlushed && !late {
		l.drained.Wait()
	}
	timeout.Stop()
	return l.rank != rankFlushed
}

// breakRail moves a queue pair to ERR and posts a signalled marker behind the last send.
// Unsignalled sends that succeeded have no completion, so only the completion of the marker
// shows that the send queue is drained (as ib_drain_sq of the kernel does). Called with mu
// held.
func (l *link) breakRail(at int, r *rail) error {
	if err := r.qp.ToErr(); err != nil {
		return err
	}
	r.marked = true
	_, err := r.qp.PostSend([]verbs.SendWR{{
		ID: l.wrID(uint32(at), kindMarker), Op: verbs.OpWrite, Signaled: true, //nolint:gosec // a rail
	}})
	if err != nil {
		r.marked = false
	}
	return err
}

// isDrained reports whether everything that was posted has completed. Called with mu held.
func (l *link) isDrained() bool {
	for _, r := range l.rails {
		if r.completed != r.posted || r.marked {
			return false
		}
	}
	return true
}

// discard ends a link in any state. A link that was never connected has nothing to drain. A
// connected one sends BYE, unless the peer has left it already.
func (l *link) discard(err error, left bool) {
	l.mu.Lock()
	if l.state != linkOffered {
		l.mu.Unlock()
		if left {
			l.leave(err)
		} else {
			l.bye(status.From(err).Message())
		}
		return
	}
	l.state, l.err = linkGone, err
	l.mu.Unlock()
	l.destroy()
	l.peer.linkGone(l, err, false)
}

// bye leaves the channel and sends the reason to the peer in BYE.
func (l *link) bye(reason string) {
	l.mu.Lock()
	if l.state != linkOpen {
		l.mu.Unlock()
		return
	}
	l.byes = true
	l.machine.Bye(time.Now(), status.WithoutQPNs(reason))
	l.run(time.Now())
}

// destroy destroys the device's objects of the link.
func (l *link) destroy() {
	t := l.peer.transport
	for _, r := range l.rails {
		if r.qp != nil {
			t.logClose("queue pair", r.qp.Close())
		}
	}
	if l.queue != nil {
		_ = l.queue.Stop() // its error was passed to leave
	}
	if l.cq != nil {
		t.logClose("completion queue", l.cq.Close())
	}
	for _, s := range []*regmem.Slots{l.inbox, l.out} {
		if s != nil {
			t.logClose("memory of messages", s.Close())
		}
	}
}

// lostErr is the error of what the channel did not finish. Called with mu held, or in state
// linkGone.
func (l *link) lostErr() *status.Error {
	return status.Errorf(status.Unavailable, "%v was left: %w", l, l.err)
}

// lostBy is the error of an attempt whose channel was left because of cause. Its code is
// Unavailable whatever the code of cause: a broken connection is no response
// (transport.LostError).
func lostBy(cause error) *transport.LostError {
	return &transport.LostError{Err: status.New(status.Unavailable, status.From(cause).Message())}
}
