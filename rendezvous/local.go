package rendezvous

import (
	"context"
	"hash/maphash"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Local is the table of one step: a FIFO queue per key, in parts with a lock
// each. A Send or Recv takes the lock of its part only. A key that waits takes
// some 110 bytes beside its text, 310 as a receive whose context can be
// cancelled (BenchmarkWaiting).
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

// shard returns the part of the table that holds a key, and the key's hash
// within it.
func (l *Local) shard(key string) (*shard, uint32) {
	t := l.table.Load()
	if t == nil {
		l.table.CompareAndSwap(nil, new(parts))
		t = l.table.Load()
	}
	h := maphash.String(l.seed, key)
	p := &t[h>>32%shards]
	s := p.Load()
	if s == nil {
		p.CompareAndSwap(nil, new(shard))
		s = p.Load()
	}
	return s, uint32(h)
}

// Inside the package keys are texts: a Key is 176 bytes, and passing it on costs
// as much as searching the table.

// Send implements Rendezvous. A receive that waits is completed before Send
// returns, on this goroutine.
func (l *Local) Send(key Key, args Args, t *tensor.Tensor, dead bool) error {
	return l.send(key.text, args, t, dead)
}

func (l *Local) send(key string, args Args, t *tensor.Tensor, dead bool) error {
	v, err := newValue(key, args, t, dead)
	if err != nil {
		return err
	}
	if err := l.put(key, v, false); err != nil {
		v.release()
		return err
	}
	return nil
}

// take returns the value at the head of a key's queue if there is one.
func (l *Local) take(key string) (v Value, ok bool) {
	s, hash := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.aborted.Load() == nil {
		v, _, ok = s.takeLocked(key, hash)
	}
	return v, ok
}

// Restore gives back a value that was matched to a receive which was then
// cancelled: to the first receive that waits for the key, or else to its place
// before the values that wait, so that those of the key are taken in the order in
// which they were sent, whatever the order in which several come back. It takes over
// the caller's reference and returns true; false when the step was aborted or closed,
// and then the caller keeps the reference.
func (l *Local) Restore(key Key, v Value) bool {
	return l.put(key.text, v, true) == nil
}

// put hands v to the first receive that waits, or queues it: in its place when it comes
// back.
func (l *Local) put(key string, v Value, back bool) error {
	s, hash := l.shard(key)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		return err
	}
	if !back {
		s.sent++
		v.at = s.sent
	}
	head := s.headLocked(key, hash)
	if head == nil || head.done == nil {
		e := s.newEntryLocked(key, hash)
		e.tensor, e.args, e.dead, e.at = v.Tensor, v.SendArgs, v.Dead, v.at
		if back {
			s.returnLocked(e)
		} else {
			s.insertLocked(head, e)
		}
		s.mu.Unlock()
		return nil
	}
	s.removeLocked(head)
	done, stop, args := head.done, head.stop, head.args
	s.recycleLocked(head)
	s.run.enterLocked(1)
	s.mu.Unlock()

	if stop != nil {
		stop()
	}
	s.call(done, v, args, nil)
	return nil
}

// takeLocked returns the first value of a key. Without one it returns the head of
// its queue, a receive or nil.
func (s *shard) takeLocked(key string, hash uint32) (v Value, head *entry, ok bool) {
	if s.returned != nil {
		if e := s.takeReturnedLocked(key); e != nil {
			v = e.value()
			s.recycleLocked(e)
			return v, nil, true
		}
	}
	head = s.headLocked(key, hash)
	if head == nil || head.done != nil {
		return Value{}, head, false
	}
	v = head.value()
	s.removeLocked(head)
	s.recycleLocked(head)
	return v, nil, true
}

// RecvAsync implements Rendezvous.
func (l *Local) RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc) {
	l.recvAsync(ctx, key.text, args, done)
}

func (l *Local) recvAsync(ctx context.Context, key string, args Args, done DoneFunc) {
	if err := ended(ctx, "RecvAsync", key); err != nil {
		done(Value{}, args, err)
		return
	}
	s, hash := l.shard(key)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		done(Value{}, args, err)
		return
	}
	v, head, ok := s.takeLocked(key, hash)
	if ok {
		s.run.enterLocked(1)
		s.mu.Unlock()
		s.call(done, v, args, nil)
		return
	}
	e := s.newEntryLocked(key, hash)
	watch := ctx.Done() != nil
	e.done, e.args, e.held = done, args, watch
	s.insertLocked(head, e)
	s.mu.Unlock()
	if watch {
		s.watch(ctx, e)
	}
}

// watch cancels the receive e when ctx ends while it waits. The watch begins
// after e was queued, outside the lock, since a foreign context may run code
// of its own here.
func (s *shard) watch(ctx context.Context, e *entry) {
	stop := context.AfterFunc(ctx, func() {
		if s.withdraw(e, 1) {
			s.call(e.done, Value{}, e.args, ended(ctx, "RecvAsync", e.key))
		}
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

// withdraw takes a receive that waits out of its queue and counts callbacks to
// be run for it. It returns false when the receive was matched or aborted.
func (s *shard) withdraw(e *entry, callbacks int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !e.queued {
		return false
	}
	s.removeLocked(e)
	s.run.enterLocked(callbacks)
	return true
}

// Recv implements Rendezvous. A value that is there already is taken without
// an allocation.
func (l *Local) Recv(ctx context.Context, key Key, args Args) (Value, error) {
	return l.recv(ctx, key.text, args)
}

func (l *Local) recv(ctx context.Context, key string, args Args) (Value, error) {
	if err := ended(ctx, "RecvAsync", key); err != nil {
		return Value{}, err
	}
	s, hash := l.shard(key)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		return Value{}, err
	}
	v, head, ok := s.takeLocked(key, hash)
	if ok {
		s.mu.Unlock()
		return v, nil
	}
	e := s.newEntryLocked(key, hash)
	c := make(outcomes, 1)
	e.done, e.args, e.held = c.done, args, true
	s.insertLocked(head, e)
	s.mu.Unlock()

	select {
	case o := <-c:
		return o.v, o.err
	case <-ctx.Done():
	}
	if s.withdraw(e, 0) {
		return Value{}, ended(ctx, "RecvAsync", key)
	}
	o := <-c // matched or aborted before the context ended
	return o.v, o.err
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
