package verbstransport

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/transport/verbs/channel"
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/transport/verbs/poll"
	"github.com/tryst-rdma/tryst/transport/verbs/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// receive is an attempt of this side on its way.
type receive struct {
	waiter *poll.Waiter
	dest   uint64 // handle of its destination; 0 while it has none
	value  rendezvous.Value
	buf    *tensor.Buffer // written: the value's content
	meta   wire.Value     // of it
	err    error
	// noPlace is why there is no destination, in the words of the pool.
	noPlace error
}

// recv makes one attempt of a receive over this channel.
func (l *link) recv(ctx context.Context, a *transport.Attempt) (rendezvous.Value, error) {
	r := &receive{}
	id := attemptID{a.ID, a.Attempt}
	l.mu.Lock()
	if l.state != linkOpen {
		err := l.lostErr()
		l.mu.Unlock()
		return rendezvous.Value{}, &transport.LostError{Err: err}
	}
	req := channel.Receive{
		ID: a.ID, Attempt: a.Attempt, Sender: a.Peer, Left: a.Left, Step: a.Step, Key: a.Key.String(), Finished: a.Finished,
	}
	if v, ok := l.machine.Known(req.Key); ok {
		if d, err := l.destination(r, v.Size, mem.InAdvance, mem.Stay); err == nil {
			req.Early, req.Value = &d, v
		}
	}
	r.waiter = l.queue.NewWaiter()
	l.receives[id] = r
	l.machine.Receive(time.Now(), req)
	l.run()
	if err := r.waiter.Wait(ctx); err != nil && l.cancel(id) {
		return rendezvous.Value{}, err
	}
	if r.buf != nil {
		return fromMemory(&r.meta, r.buf, l.peer.transport.opts.Allocator)
	}
	return r.value, r.err
}

// destination is memory that a receive has been given, and which one: nil when that
// had ended before.
type destination struct {
	mem.Destination
	of     *receive
	leases [wire.MaxRails]verbs.Window // by rail; nil where the arena's key was told
}

// quarantine says of a receive's destination, if it has one, that nobody wants it any
// more, while the peer may still write. Called with the lock held.
func (l *link) quarantine(now time.Time, r *receive) {
	if d, ok := l.dests.get(r.dest); ok {
		d.Quarantine(now)
	}
}

// cancel ends a receive that is not wanted any more; false when it has ended
// already. The memory that was given out for it stays the channel's until the
// peer's word has come.
func (l *link) cancel(id attemptID) bool {
	l.mu.Lock()
	r := l.receives[id]
	if r == nil {
		l.mu.Unlock()
		return false
	}
	now := time.Now()
	l.quarantine(now, r)
	if l.state != linkGone {
		l.machine.Cancel(now, id.id, id.attempt)
	}
	delete(l.receives, id)
	l.run()
	return true
}

// tell says finished or cancelled, and waits until the peer has taken it.
func (l *link) tell(ctx context.Context, ids []uint64, cancel bool) error {
	s := &say{cancel: cancel, done: make(chan struct{})}
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
		s.mark = l.machine.Finish(now, ids, 0)
	}
	if s.reached(l.taken) {
		s.end(nil)
	} else {
		l.says = append(l.says, s)
	}
	l.run()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return status.From(context.Cause(ctx))
	}
}
