package rendezvous

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Local is the table of one step: a FIFO queue per key, in parts with a lock
// each. A Send or Recv takes the lock of its part only.
//
// Abort needs no lock of the whole table either. It first sets aborted, then
// sweeps the parts one after another; whoever queues an entry looks at aborted
// inside the part's lock. So an entry is either queued before the sweep of its
// part, which finds it, or refused.
type Local struct {
	seed    maphash.Seed
	aborted atomic.Pointer[status.Error] // set once
	table   atomic.Pointer[parts]        // made by the first Send or Recv
}

// parts are made one by one, when a key first falls into them.
type parts [shards]atomic.Pointer[shard]

// NewLocal returns an empty table.
func NewLocal() *Local {
	l := new(Local)
	l.init()
	return l
}

func (l *Local) init() { l.seed = maphash.MakeSeed() }

// shard returns the part of the table that holds a key.
func (l *Local) shard(key string) *shard {
	t := l.table.Load()
	if t == nil {
		l.table.CompareAndSwap(nil, new(parts))
		t = l.table.Load()
	}
	p := &t[maphash.String(l.seed, key)%shards]
	s := p.Load()
	if s == nil {
		p.CompareAndSwap(nil, new(shard))
		s = p.Load()
	}
	return s
}

// Send implements Rendezvous. A receive that waits is completed before Send
// returns, on this goroutine.
func (l *Local) Send(key Key, args Args, t *tensor.Tensor, dead bool) error {
	v, err := newValue(key, args, t, dead)
	if err != nil {
		return err
	}
	if err := l.put(key.text, v, false); err != nil {
		v.release()
		return err
	}
	return nil
}

// Restore gives back a value that was matched to a receive which was then
// cancelled: to the first receive that waits for the key, or else to the head
// of its queue, so that it is the next to be taken. It takes over the caller's
// reference and returns true; false when the step was aborted or closed, and
// then the caller keeps the reference.
func (l *Local) Restore(key Key, v Value) bool {
	return l.put(key.text, v, true) == nil
}

// put hands v to the first receive that waits, or queues it.
func (l *Local) put(key string, v Value, inFront bool) error {
	s := l.shard(key)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		return err
	}
	head := s.queues[key]
	if head == nil || head.done == nil {
		e := s.newEntryLocked()
		e.tensor, e.device, e.onHost, e.dead = v.Tensor, v.SendArgs.Device, v.SendArgs.OnHost, v.Dead
		s.insertLocked(key, head, e, inFront)
		s.mu.Unlock()
		return nil
	}
	s.removeLocked(key, head)
	done, stop, args := head.done, head.stop, head.args()
	s.recycleLocked(head)
	s.run.enterLocked(1)
	s.mu.Unlock()

	if stop != nil {
		stop()
	}
	s.call(done, v, args, nil)
	return nil
}

// takeLocked returns the value at the head of a key's queue. Without one it
// returns the head, a receive or nil.
func (s *shard) takeLocked(key string) (v Value, head *entry, ok bool) {
	head = s.queues[key]
	if head == nil || head.done != nil {
		return Value{}, head, false
	}
	v = head.value()
	s.removeLocked(key, head)
	s.recycleLocked(head)
	return v, nil, true
}

// RecvAsync implements Rendezvous.
func (l *Local) RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc) {
	if err := ended(ctx, "RecvAsync", key); err != nil {
		done(Value{}, args, err)
		return
	}
	s := l.shard(key.text)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		done(Value{}, args, err)
		return
	}
	v, head, ok := s.takeLocked(key.text)
	if ok {
		s.run.enterLocked(1)
		s.mu.Unlock()
		s.call(done, v, args, nil)
		return
	}
	e := s.newEntryLocked()
	e.done, e.device, e.onHost, e.held = done, args.Device, args.OnHost, ctx.Done() != nil
	s.insertLocked(key.text, head, e, false)
	s.mu.Unlock()
	if ctx.Done() != nil {
		s.watch(ctx, key, e)
	}
}

// watch cancels the receive e when ctx ends while it waits. The watch begins
// after e was queued, outside the lock, since a foreign context may run code
// of its own here.
func (s *shard) watch(ctx context.Context, key Key, e *entry) {
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		if !e.queued {
			s.mu.Unlock()
			return
		}
		s.removeLocked(key.text, e)
		s.run.enterLocked(1)
		s.mu.Unlock()
		s.call(e.done, Value{}, e.args(), ended(ctx, "RecvAsync", key))
	})
	s.mu.Lock()
	queued := e.queued
	if queued {
		e.stop = stop
	}
	s.mu.Unlock()
	if !queued {
		stop()
	}
}

// Recv implements Rendezvous. A value that is there already is taken without
// an allocation.
func (l *Local) Recv(ctx context.Context, key Key, args Args) (Value, error) {
	if err := ended(ctx, "RecvAsync", key); err != nil {
		return Value{}, err
	}
	s := l.shard(key.text)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		return Value{}, err
	}
	v, head, ok := s.takeLocked(key.text)
	if ok {
		s.mu.Unlock()
		return v, nil
	}
	e := s.newEntryLocked()
	wait := s.blockLocked(e, args)
	s.insertLocked(key.text, head, e, false)
	s.mu.Unlock()
	return wait(ctx, key)
}

// blockLocked makes e a receive that a goroutine waits for, and returns the
// wait. The goroutine watches its context itself.
func (s *shard) blockLocked(e *entry, args Args) func(context.Context, Key) (Value, error) {
	type outcome struct {
		v   Value
		err error
	}
	c := make(chan outcome, 1)
	e.done = func(v Value, _ Args, err error) { c <- outcome{v, err} }
	e.device, e.onHost, e.held = args.Device, args.OnHost, true
	return func(ctx context.Context, key Key) (Value, error) {
		select {
		case o := <-c:
			return o.v, o.err
		case <-ctx.Done():
		}
		s.mu.Lock()
		queued := e.queued
		if queued {
			s.removeLocked(key.text, e)
		}
		s.mu.Unlock()
		if queued {
			return Value{}, ended(ctx, "RecvAsync", key)
		}
		o := <-c // matched or aborted before the context ended
		return o.v, o.err
	}
}

// Abort implements Rendezvous. The callbacks of what waits run on this
// goroutine.
func (l *Local) Abort(err error) {
	if l.aborted.CompareAndSwap(nil, abortStatus(err)) {
		l.each(func(s *shard) { s.sweep(l.aborted.Load()) })
	}
}

// Err returns the error that the step was aborted with; nil while it lives.
func (l *Local) Err() error {
	if err := l.aborted.Load(); err != nil {
		return err
	}
	return nil
}

// Close waits for callbacks that run, aborts what is left with Cancelled, and
// returns when no callback runs any more. It must not be called from one.
// Closing twice is harmless.
func (l *Local) Close() {
	l.each((*shard).wait)
	l.Abort(status.New(status.Cancelled, "LocalRendezvous deleted"))
	l.each(func(s *shard) {
		s.sweep(l.aborted.Load()) // an Abort under way may not have come here yet
		s.wait()
	})
}

// busy reports whether a callback runs.
func (l *Local) busy() bool {
	n := 0
	l.each(func(s *shard) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n += s.run.n
	})
	return n > 0
}

// each calls f for the parts that exist.
func (l *Local) each(f func(*shard)) {
	if t := l.table.Load(); t != nil {
		for i := range t {
			if s := t[i].Load(); s != nil {
				f(s)
			}
		}
	}
}

func abortStatus(err error) *status.Error {
	if err == nil {
		return status.New(status.Aborted, "the step was aborted without a reason")
	}
	return status.From(err)
}
