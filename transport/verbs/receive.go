package verbstransport

import (
	"context"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/transport/verbs/poll"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
)

// receive is an attempt of this side on its way: a transport.Pending. It is used
// again, for others of its link.
type receive struct {
	link   *link
	waiter *poll.Waiter
	use    // guarded by link.mu until waiter is done

	// Of the value, when there is no error; the memory is used again.
	meta    wire.Value
	content []byte       // unless it was written into use.buf
	shape   tensor.Shape // of the last value
}

// use is what a receive has of one attempt.
type use struct {
	attempt *transport.Attempt // the caller's

	id   attemptID
	own  uint64         // its handle; 0 when it has ended
	dest uint64         // handle of its destination; 0 while it has none
	buf  *tensor.Buffer // the value's content, where it was written; nil where it came in a message
	err  error
	// noPlace is why there is no destination, in the words of the pool.
	noPlace error
}

// start makes one attempt of a receive over this channel: what is to be posted has
// been when it returns.
func (l *link) start(a *transport.Attempt) *receive {
	l.mu.Lock()
	now := a.Began
	r := l.newReceive()
	r.attempt, r.id = a, attemptID{a.ID, a.Attempt}
	if l.state != linkOpen {
		r.err = lostBy(l.lostErr())
		r.waiter.Done()
		l.mu.Unlock()
		return r
	}
	req := channel.Receive{
		ID: a.ID, Attempt: a.Attempt, Handle: l.receives.put(r), Sender: a.Peer, Left: a.Left, Step: a.Step, Key: a.Key.String(), Finished: a.Finished,
	}
	if v, ok := l.machine.Known(req.Key); ok {
		if d, err := l.destination(r, v.Size, mem.InAdvance, mem.Stay); err == nil {
			req.Early, req.Value = &d, v
		}
	}
	r.own = req.Handle
	l.cancels(now, a.Cancelled)
	l.machine.Receive(now, req)
	l.run(now)
	return r
}

// cancels says that ids are not wanted any more, before a request is posted: but for those
// that are being said already. Called with the lock held.
func (l *link) cancels(now time.Time, ids []uint64) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id uint64) bool {
		return slices.ContainsFunc(l.says, func(s *say) bool { return s.cancel && slices.Contains(s.ids, id) })
	})
	if len(ids) > 0 {
		l.machine.SayCancelled(now, ids)
	}
}

// newReceive takes a record that is free, or makes one. Called with the lock held.
func (l *link) newReceive() *receive {
	if n := len(l.spare.receives); n > 0 {
		r := l.spare.receives[n-1]
		l.spare.receives = l.spare.receives[:n-1]
		return r
	}
	return &receive{link: l, waiter: l.queue.NewWaiter()}
}

// Wait implements transport.Pending.
func (r *receive) Wait() (rendezvous.Value, error) {
	_ = r.waiter.Wait(context.Background()) // Drop ends it, too
	l := r.link
	v, err := r.value()
	if err == nil {
		l.peer.arrived(r.attempt, v.Tensor.Size())
	} else {
		err = l.peer.failed(err)
	}
	l.mu.Lock()
	r.waiter.Reset() // who said Done held the lock, and has ended it by now
	if len(l.spare.receives) < maxFree {
		r.use = use{}
		if len(r.content) > DefaultEagerLimit {
			r.content = nil
		}
		l.spare.receives = append(l.spare.receives, r)
	}
	l.mu.Unlock()
	return v, err
}

// value is what the receive has ended with.
func (r *receive) value() (rendezvous.Value, error) {
	a := r.link.peer.transport.opts.Allocator
	var v rendezvous.Value
	err := r.err
	switch {
	case err != nil:
	case r.buf != nil:
		v, err = fromMemory(&r.meta, r.buf, r.shape, a)
	default:
		v, err = fromMessage(&r.meta, r.content, r.shape, a)
	}
	switch {
	case err == nil:
		r.shape = v.Tensor.Shape()
	case r.err == nil:
		err = &transport.ReceiverError{Err: err}
	}
	return v, err
}

// Await implements transport.Pending.
func (r *receive) Await(ctx context.Context) bool { return r.waiter.Wait(ctx) == nil }

// Watch implements transport.Pending.
func (r *receive) Watch(ready func()) bool { return r.waiter.Watch(ready) }

// Drop implements transport.Pending. The memory that was given out for the receive
// stays the channel's until the peer's word has come.
func (r *receive) Drop(id uint64) {
	l := r.link
	l.mu.Lock()
	if r.id.id != id || r.own == 0 {
		l.mu.Unlock()
		return // it has ended already
	}
	now := time.Now()
	l.quarantine(now, r)
	if l.state != linkGone {
		l.machine.Cancel(now, r.id.id, r.id.attempt)
	}
	l.receives.take(r.own)
	r.own, r.err = 0, errDropped()
	r.waiter.Done()
	l.run(now)
}

func errDropped() error {
	return status.New(status.Cancelled, "the receive is not wanted any more").Derived()
}

// quarantine says of a receive's destination, if it has one, that nobody wants it any
// more, while the peer may still write. Called with the lock held.
func (l *link) quarantine(now time.Time, r *receive) {
	if d, ok := l.dests.get(r.dest); ok {
		d.Quarantine(now)
	}
}

// tell says finished or cancelled, and waits until the peer has taken it.
func (l *link) tell(ctx context.Context, ids []uint64, cancel bool) error {
	s := &say{cancel: cancel, ids: ids, done: make(chan struct{})}
	l.mu.Lock()
	if l.state != linkOpen {
		err := l.lostErr()
		l.mu.Unlock()
		return err
	}
	now := time.Now()
	if cancel {
		s.mark = l.machine.SayCancelled(now, ids)
	} else {
		s.mark = l.machine.Finish(now, ids)
	}
	if s.reached(l.taken) {
		s.end(nil)
	} else {
		l.says = append(l.says, s)
	}
	l.run(now)
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return status.From(context.Cause(ctx))
	}
}
