package verbstransport

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/channel"
	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
)

// attempt is one attempt of a receive over a link. It implements transport.Attempt.
type attempt struct {
	link   *link
	waiter *progress.Waiter
	t      *transport.Receive
	id     attemptID

	// The fields below are guarded by link.mu until waiter is done.
	handle  uint64         // in link.attempts; 0 when the attempt has ended
	dest    uint64         // handle of its destination in link.dests; 0 for none
	noDest  error          // why there is no destination
	meta    wire.Value     // meta-data of the value, if err is nil
	buf     *tensor.Buffer // content that was written into registered memory; else nil
	content []byte         // copy of content that came in a message
	err     error
}

// begin begins an attempt over this channel. When it returns, the request is posted or
// waits for a credit.
func (l *link) begin(t *transport.Receive) *attempt {
	a := &attempt{link: l, waiter: l.queue.NewWaiter(), t: t, id: attemptID{t.ID, t.Attempt}}
	l.mu.Lock()
	if l.state != linkOpen {
		lost := lostBy(l.lostErr())
		lost.Unsent = true
		a.err = lost
		a.waiter.Done()
		l.mu.Unlock()
		return a
	}
	now := t.Began
	a.handle = l.attempts.put(a)
	req := channel.Receive{
		ID: t.ID, Attempt: t.Attempt, Handle: a.handle, Responder: t.Peer, Left: t.Left, Step: t.Step, Key: t.Key.String(), Acks: t.Acks,
	}
	if v, ok := l.expected(t, req.Key); ok {
		if d, err := l.destination(a, t.Into != nil, v.Size, regmem.InAdvance, regmem.NoGrow); err == nil {
			req.Early, req.Value = &d, v
		}
	}
	l.sendCancels(now, t.Cancels)
	l.machine.Receive(now, req)
	l.run(now)
	return a
}

// expected returns the meta-data of the large value that a transfer will bring, as far as it
// can be known: the receiver's own memory has its type and shape, or the last value under the
// key had. The result is valid until the next event. Called with mu held.
func (l *link) expected(t *transport.Receive, key string) (wire.Value, bool) {
	if t.Into == nil {
		return l.machine.CachedMeta(key)
	}
	v := l.describe(t.Into.Tensor())
	return v, !l.machine.Eager(&v)
}

// sendCancels cancels ids at the peer before a request is posted, except the ids of a batch
// that the peer has not confirmed yet. Called with mu held.
func (l *link) sendCancels(now time.Time, ids []uint64) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool {
		return slices.ContainsFunc(l.batches, func(b *batch) bool { return b.cancel && slices.Contains(b.ids, id) })
	})
	if len(ids) > 0 {
		l.machine.CancelBefore(now, ids)
	}
}

// Wait implements transport.Attempt.
func (a *attempt) Wait(ctx context.Context) (rendezvous.Value, error) {
	if a.waiter.Wait(ctx) != nil {
		a.Drop()
	}
	v, err := a.value()
	if err != nil {
		return v, a.link.peer.countFailed(err)
	}
	a.link.peer.countReceived(a.t, a.link.port.name, v.Tensor.Size())
	return v, nil
}

// value returns the outcome of an attempt that has ended. It runs on the waiting goroutine
// since it calls the user's allocator.
func (a *attempt) value() (rendezvous.Value, error) {
	if a.err != nil {
		return rendezvous.Value{}, a.err
	}
	var v rendezvous.Value
	var err error
	switch alloc := a.link.peer.transport.opts.Allocator; {
	case a.t.Into != nil && !a.meta.Proto && !a.meta.Dead:
		return a.valueInto()
	case a.buf != nil:
		v, err = fromMemory(&a.meta, a.buf, alloc)
	default:
		v, err = fromMessage(&a.meta, a.content, alloc)
	}
	if err != nil {
		return v, &transport.ReceiverError{Err: err}
	}
	v.Tensor, err = a.t.Deliver(v.Tensor, v.Dead)
	return v, err
}

// valueInto is value for a content that goes into the receiver's own memory: it is there
// already, or is copied there from the message or from registered memory.
func (a *attempt) valueInto() (rendezvous.Value, error) {
	err := a.checkInto(&a.meta)
	into := a.t.Into.Tensor()
	switch {
	case a.buf == nil && err == nil:
		copy(into.Bytes(), a.content)
		into.Retain()
	case a.buf == nil:
	case err == nil && a.buf == into.Buffer():
		a.t.Into.WrittenByDevice() // the value has the reference of a.buf now
	default:
		if err == nil {
			copy(into.Bytes(), a.buf.Bytes())
			into.Retain()
		}
		a.buf.Release()
	}
	if err != nil {
		return rendezvous.Value{}, err
	}
	return rendezvous.Value{Tensor: into}, nil
}

// checkInto is Transfer.CheckInto for the meta-data of a value.
func (a *attempt) checkInto(v *wire.Value) error {
	shape, err := shapeOf(v)
	if err != nil {
		return &transport.ReceiverError{Err: err}
	}
	return a.t.CheckInto(v.DType, shape)
}

// Notify implements transport.Attempt.
func (a *attempt) Notify(ready func()) bool { return a.waiter.Watch(ready) }

// Drop implements transport.Attempt. Memory that the peer may write into is quarantined until
// the peer has confirmed the cancel.
func (a *attempt) Drop() {
	l := a.link
	l.mu.Lock()
	if a.handle == 0 {
		l.mu.Unlock()
		return // the attempt has ended already
	}
	now := time.Now()
	l.quarantine(now, a)
	if l.state != linkGone {
		l.machine.Cancel(now, a.id.id, a.id.attempt)
	}
	l.attempts.take(a.handle)
	a.handle, a.err = 0, &transport.ReceiverError{Err: errDropped()}
	a.waiter.Done()
	l.run(now)
}

func errDropped() error {
	return status.New(status.Cancelled, "the receive was cancelled").Derived()
}

// quarantine marks the destination of an attempt, if it has one, as unused while the peer
// may still write into it. Called with mu held.
func (l *link) quarantine(now time.Time, a *attempt) {
	if d, ok := l.dests.get(a.dest); ok {
		d.Quarantine(now)
	}
}

// attempt finds an attempt that has not ended; nil for another. Handles are reused, so the id
// is checked. Called with mu held.
func (l *link) attempt(handle uint64, id attemptID) *attempt {
	a, _ := l.attempts.get(handle)
	if a == nil || a.id != id {
		return nil
	}
	return a
}

// end ends an attempt of this side. Called with mu held.
func (l *link) end(e *channel.Action, now time.Time) {
	a := l.attempt(e.Handle, attemptID{e.ID, e.Attempt})
	if a != nil {
		l.attempts.take(e.Handle)
		a.handle = 0
	}
	dest, written := l.takeDest(e.Dest)
	if a != nil {
		l.outcome(a, e, &dest, now)
	}
	if written {
		l.release(&dest)
	}
	if a != nil { // from here on the receiver owns the memory alone
		a.waiter.Done()
	}
}

// outcome sets the result of an attempt that has ended.
func (l *link) outcome(a *attempt, e *channel.Action, dest *destination, now time.Time) {
	a.t.Ended = now
	switch e.Outcome {
	case channel.OutcomeEager:
		e.Value.CopyTo(&a.meta)
		a.content = slices.Clone(e.Content)
	case channel.OutcomeWritten:
		e.Value.CopyTo(&a.meta)
		a.buf = dest.Buffer().Retain()
	case channel.OutcomeFallback:
		if own, ok := a.noDest.(*transport.ReceiverError); ok { //nolint:errorlint // never wrapped
			a.err = own // no other route would help
			return
		}
		if e.ByPeer && transport.IsMoved(e.Err) {
			a.err = &transport.MovedError{Err: e.Err}
			l.movedAt.Store(now.UnixNano())
			return
		}
		a.err = &transport.FallbackError{Err: cmp.Or(a.noDest, e.Err)}
		switch c := &l.peer.counters; {
		case e.ByPeer:
			c.peerNoMemory.Add(1)
		case a.noDest != nil:
			c.noMemory.Add(1)
		default:
			c.noFit.Add(1)
		}
	case channel.OutcomeLost:
		a.err = lostBy(cmp.Or(l.err, e.Err)) // l.err may be more specific
	default:
		l.quarantine(now, a) // CANCEL may have been sent before the attempt was dropped
		a.err = e.Err
		switch {
		case transport.IsOtherProcess(e.Err):
			a.err = &transport.RestartedError{Err: e.Err}
		case !e.ByPeer:
			a.err = &transport.ReceiverError{Err: e.Err}
		}
	}
}

// countFailed counts an attempt that is retried or takes the fallback. Without a fallback
// (Options.Require) it turns a FallbackError into the error of the receive.
func (p *peer) countFailed(err error) error {
	switch e := err.(type) { //nolint:errorlint // an attempt's own errors, not wrapped
	case *transport.LostError:
		p.counters.lost.Add(1)
	case *transport.FallbackError:
		if p.transport.opts.Require {
			return &transport.ReceiverError{Err: required(e.Err)}
		}
	}
	return err
}

// required returns the error of a receive that may take no other connection. Whether the reason may pass stays.
func required(reason error) error {
	_, passes := status.From(reason).Payload(status.TryAgain)
	return status.PassingIf(passes, "%w (the setting fallback is none, which allows no other connection)", reason)
}

// failedAttempt is a transport.Attempt that failed before it began.
type failedAttempt struct{ err error }

// Wait implements transport.Attempt.
func (f failedAttempt) Wait(context.Context) (rendezvous.Value, error) {
	return rendezvous.Value{}, f.err
}

// Notify implements transport.Attempt.
func (failedAttempt) Notify(ready func()) bool {
	ready()
	return true
}

// Drop implements transport.Attempt.
func (failedAttempt) Drop() {}
