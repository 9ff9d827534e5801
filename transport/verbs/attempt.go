package verbstransport

import (
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport/internal/channel"
	"github.com/tryst-rdma/tryst/transport/internal/delivery"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
)

// attempt is one attempt of a transfer over a link. It implements delivery.Attempt.
type attempt struct {
	link   *link
	waiter *progress.Waiter
	t      *delivery.Transfer
	id     attemptID

	// All below are guarded by link.mu until waiter is done.
	own     uint64         // its handle in link.attempts; 0 when it has ended
	dest    uint64         // handle of its destination; 0 while it has none
	noPlace error          // why there is no destination
	meta    wire.Value     // of the value, when there is no error
	buf     *tensor.Buffer // the content, where it was written
	content []byte         // else: a copy of it
	err     error
}

// begin begins an attempt over this channel. What it wants posted has been posted when it
// returns.
func (l *link) begin(t *delivery.Transfer) *attempt {
	a := &attempt{link: l, waiter: l.queue.NewWaiter(), t: t, id: attemptID{t.ID, t.Attempt}}
	l.mu.Lock()
	if l.state != linkOpen {
		a.err = lostBy(l.lostErr())
		a.waiter.Done()
		l.mu.Unlock()
		return a
	}
	now := t.Began
	a.own = l.attempts.put(a)
	req := channel.Receive{
		ID: t.ID, Attempt: t.Attempt, Handle: a.own, Responder: t.Peer, Left: t.Left, Step: t.Step, Key: t.Key.String(), Acks: t.Acks,
	}
	if v, ok := l.machine.CachedMeta(req.Key); ok {
		if d, err := l.destination(a, v.Size, regmem.InAdvance, regmem.Stay); err == nil {
			req.Early, req.Value = &d, v
		}
	}
	l.cancels(now, t.Cancels)
	l.machine.Receive(now, req)
	l.run(now)
	return a
}

// cancels cancels ids at the peer before a request is posted, but for those of a batch that
// is under way. Called with the lock held.
func (l *link) cancels(now time.Time, ids []uint64) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool {
		return slices.ContainsFunc(l.batches, func(b *batch) bool { return b.cancel && slices.Contains(b.ids, id) })
	})
	if len(ids) > 0 {
		l.machine.SendCancels(now, ids)
	}
}

// Wait implements delivery.Attempt.
func (a *attempt) Wait(ctx context.Context) (rendezvous.Value, error) {
	if a.waiter.Wait(ctx) != nil {
		a.Drop()
	}
	v, err := a.value()
	if err != nil {
		return v, a.link.peer.failed(err)
	}
	a.link.peer.arrived(a.t, v.Tensor.Size())
	return v, nil
}

// value is what the attempt has ended with. The waiting goroutine makes it: memory comes
// from an allocator that others wrote.
func (a *attempt) value() (rendezvous.Value, error) {
	if a.err != nil {
		return rendezvous.Value{}, a.err
	}
	var v rendezvous.Value
	var err error
	if alloc := a.link.peer.transport.opts.Allocator; a.buf != nil {
		v, err = fromMemory(&a.meta, a.buf, alloc)
	} else {
		v, err = fromMessage(&a.meta, a.content, alloc)
	}
	if err != nil {
		return v, &delivery.ReceiverError{Err: err}
	}
	return v, nil
}

// Notify implements delivery.Attempt.
func (a *attempt) Notify(ready func()) bool { return a.waiter.Watch(ready) }

// Drop implements delivery.Attempt. The memory that the peer may write into stays the
// channel's until the peer has confirmed that it does not.
func (a *attempt) Drop() {
	l := a.link
	l.mu.Lock()
	if a.own == 0 {
		l.mu.Unlock()
		return // it has ended already
	}
	now := time.Now()
	l.quarantine(now, a)
	if l.state != linkGone {
		l.machine.Cancel(now, a.id.id, a.id.attempt)
	}
	l.attempts.take(a.own)
	a.own, a.err = 0, &delivery.ReceiverError{Err: errDropped()}
	a.waiter.Done()
	l.run(now)
}

func errDropped() error {
	return status.New(status.Cancelled, "the receive is not wanted any more").Derived()
}

// quarantine marks the destination of an attempt, if it has one, as one that nobody wants
// while the peer may still write. Called with the lock held.
func (l *link) quarantine(now time.Time, a *attempt) {
	if d, ok := l.dests.get(a.dest); ok {
		d.Quarantine(now)
	}
}

// failed counts an attempt that takes another route, where there is one.
func (p *peer) failed(err error) error {
	switch e := err.(type) { //nolint:errorlint // an attempt's own errors, not wrapped
	case *delivery.LostError:
		p.counters.lost.Add(1)
	case *delivery.FallbackError:
		if p.transport.opts.Require {
			return &delivery.ReceiverError{Err: status.Errorf(status.ResourceExhausted, "%w (--fallback none allows no other wire)", e.Err)}
		}
	}
	return err
}

// failed is a delivery.Attempt that has failed before it began.
type failed struct{ err error }

// Wait implements delivery.Attempt.
func (f failed) Wait(context.Context) (rendezvous.Value, error) { return rendezvous.Value{}, f.err }

// Notify implements delivery.Attempt.
func (failed) Notify(ready func()) bool {
	ready()
	return true
}

// Drop implements delivery.Attempt.
func (failed) Drop() {}

// batch is a batch of acknowledgements or cancels that the peer has not confirmed.
type batch struct {
	cancel bool // cancels, else acknowledgements
	ids    []uint64
	mark   channel.Mark
	done   chan struct{}
	err    error
}

func (b *batch) end(err error) {
	b.err = err
	close(b.done)
}

func (b *batch) reached(m channel.Marks) bool {
	if b.cancel {
		return m.Cancels >= b.mark
	}
	return m.Acks >= b.mark
}

// flush sends a batch, and waits until the peer has confirmed it.
func (l *link) flush(ctx context.Context, ids []uint64, cancel bool) error {
	b := &batch{cancel: cancel, ids: ids, done: make(chan struct{})}
	l.mu.Lock()
	if l.state != linkOpen {
		err := l.lostErr()
		l.mu.Unlock()
		return err
	}
	now := time.Now()
	if cancel {
		b.mark = l.machine.SendCancels(now, ids)
	} else {
		b.mark = l.machine.Ack(now, ids)
	}
	if b.reached(l.confirmed) {
		b.end(nil)
	} else {
		l.batches = append(l.batches, b)
	}
	l.run(now)
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return status.From(context.Cause(ctx))
	}
}

// confirms ends the batches that the peer has confirmed. Called with the lock held.
func (l *link) confirms(m channel.Marks) {
	l.confirmed = m
	l.batches = slices.DeleteFunc(l.batches, func(b *batch) bool {
		if !b.reached(m) {
			return false
		}
		b.end(nil)
		return true
	})
}
