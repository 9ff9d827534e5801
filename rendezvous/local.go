package rendezvous

import (
	"context"
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Local is the table of one step: a FIFO queue per key. The table is divided
// into shards with a lock each, and a Send or Recv takes the lock of its shard
// only. A waiting key takes some 110 bytes beside its text, 310 as a receive
// whose context can be cancelled (BenchmarkWaiting).
//
// Abort takes no lock of the whole table either. It first sets aborted, then
// sweeps one shard after another. Send and Recv check aborted inside the lock of
// the shard before they queue an entry. So an entry is either queued before the
// sweep of its shard, which finds it, or refused.
type Local struct {
	seed    maphash.Seed
	born    time.Time                    // for entry.since
	aborted atomic.Pointer[status.Error] // set once
	table   atomic.Pointer[shardTable]   // made by the first Send or Recv
	ended   atomic.Pointer[endSignal]    // made by the first Done
}

// shardTable holds the shards. Each is made when it gets its first key.
type shardTable [shards]atomic.Pointer[shard]

// NewLocal returns an empty table.
func NewLocal() *Local {
	l := new(Local)
	l.init()
	return l
}

func (l *Local) init() { l.seed, l.born = maphash.MakeSeed(), time.Now() }

// shard returns the shard of a key, and the key's hash within it.
func (l *Local) shard(key string) (*shard, uint32) {
	t := l.table.Load()
	if t == nil {
		l.table.CompareAndSwap(nil, new(shardTable))
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

// Inside the package keys are passed as texts, since a Key has 176 bytes.

// Send implements Rendezvous. A waiting receive is completed on this goroutine,
// before Send returns.
func (l *Local) Send(key Key, args Args, t *tensor.Tensor, dead bool) error {
	return l.send(key.text, args, t, dead)
}

func (l *Local) send(key string, args Args, t *tensor.Tensor, dead bool) error {
	v, err := newValue("Send", key, args, t, dead)
	if err != nil {
		return err
	}
	return l.sendValue(key, v)
}

// sendValue sends a value and takes over its reference, also when it fails.
func (l *Local) sendValue(key string, v Value) error {
	err := l.put(key, v, false)
	if err != nil {
		v.drop(err)
	}
	return err
}

// take returns the value at the head of a key's queue if there is one, for a peer.
func (l *Local) take(key string) (v Value, ok bool) {
	s, hash := l.shard(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.aborted.Load() == nil {
		v, _, ok = s.takeLocked(key, hash)
	}
	return v, ok
}

// Restore returns a value to the table that was matched to a receive which was
// then cancelled. The first waiting receive of the key gets it. Without one it
// is queued before the values that were sent later, so that the values of a key
// are received in the order in which they were sent, whatever the order of their
// restores. Restore takes over the caller's reference and returns true. When the
// step was aborted or closed it returns false, and the caller keeps the
// reference.
func (l *Local) Restore(key Key, v Value) bool {
	return l.put(key.text, v, true) == nil
}

// put delivers v to the first waiting receive, or queues it. restored is true for
// a value that was sent before.
func (l *Local) put(key string, v Value, restored bool) error {
	s, hash := l.shard(key)
	s.mu.Lock()
	if err := l.aborted.Load(); err != nil {
		s.mu.Unlock()
		return err
	}
	if !restored {
		s.sent++
		v.seq = s.sent
	}
	head := s.headLocked(key, hash)
	if head == nil || head.done == nil {
		e := s.newEntryLocked(key, hash)
		e.tensor, e.args, e.dead, e.seq = v.Tensor, v.SendArgs, v.Dead, v.seq
		if restored {
			s.restoreLocked(e)
		} else {
			s.insertLocked(head, e)
		}
		s.mu.Unlock()
		return nil
	}
	s.removeLocked(head)
	done, stop, args, later := head.done, head.stop, head.args, head.later
	s.recycleLocked(head)
	s.run.enterLocked(1)
	s.mu.Unlock()

	if stop != nil {
		stop()
	}
	if !later {
		v = v.arrived()
	}
	s.call(done, v, args, nil)
	return nil
}

// takeLocked removes and returns the first value of a key. When there is none, ok
// is false and head is the first receive in the queue of the key, or nil.
func (s *shard) takeLocked(key string, hash uint32) (v Value, head *entry, ok bool) {
	if s.restored != nil {
		if e := s.takeRestoredLocked(key); e != nil {
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
	l.recvAsync(ctx, key.text, args, done, false)
}

// recvAsync is RecvAsync. With later the receiver does not have the value yet when it is
// matched, since a peer asks for it or it may have to go back: done ends it by Value.arrived,
// Value.drop, Value.Deliver or Restore.
func (l *Local) recvAsync(ctx context.Context, key string, args Args, done DoneFunc, later bool) {
	if err := ended(ctx, methodAsync, key); err != nil {
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
		if !later {
			v = v.arrived()
		}
		s.call(done, v, args, nil)
		return
	}
	e := s.newEntryLocked(key, hash)
	watch := ctx.Done() != nil
	e.done, e.args, e.held, e.later, e.since = done, args, watch, later, l.age()
	s.insertLocked(head, e)
	s.mu.Unlock()
	if watch {
		s.watch(ctx, e)
	}
}

// watch cancels the receive e if ctx ends while e is queued. It is called after e
// was queued and outside the lock, since AfterFunc may run code of the caller's
// context.
func (s *shard) watch(ctx context.Context, e *entry) {
	stop := context.AfterFunc(ctx, func() {
		if s.withdraw(e, 1) {
			s.call(e.done, Value{}, e.args, ended(ctx, methodAsync, e.key))
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

// withdraw removes a waiting receive from its queue and counts callbacks, the
// number of callbacks that the caller runs for it. It returns false when the
// receive was matched or aborted.
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

// Recv implements Rendezvous. It allocates nothing when a value is queued.
func (l *Local) Recv(ctx context.Context, key Key, args Args) (Value, error) {
	return l.recv(ctx, key.text, args, false)
}

// recv is Recv. later is as in recvAsync.
func (l *Local) recv(ctx context.Context, key string, args Args, later bool) (Value, error) {
	if err := ended(ctx, methodRecv, key); err != nil {
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
		if !later {
			v = v.arrived()
		}
		return v, nil
	}
	e := s.newEntryLocked(key, hash)
	c := make(outcomes, 1)
	e.done, e.args, e.held, e.later, e.since = c.done, args, true, later, l.age()
	s.insertLocked(head, e)
	s.mu.Unlock()

	select {
	case o := <-c:
		return o.v, o.err
	case <-ctx.Done():
	}
	if s.withdraw(e, 0) {
		return Value{}, ended(ctx, methodRecv, key)
	}
	o := <-c // matched or aborted before the context ended
	return o.v, o.err
}

// Abort implements Rendezvous. It runs the callbacks of the waiting receives on
// this goroutine.
func (l *Local) Abort(err error) {
	if l.aborted.CompareAndSwap(nil, abortStatus(err)) {
		l.signalEnd()
		l.each(func(s *shard) { s.sweep(l.aborted.Load()) })
	}
}

// Err returns the error of the abort, nil when the step was not aborted.
func (l *Local) Err() error {
	if err := l.aborted.Load(); err != nil {
		return err
	}
	return nil
}

// Close waits for running callbacks, aborts the step with Cancelled, and returns
// when no callback runs any more. It must not be called from a callback. It may
// be called more than once.
func (l *Local) Close() {
	l.each((*shard).wait)
	l.Abort(status.New(status.Cancelled, "LocalRendezvous deleted"))
	l.each(func(s *shard) {
		s.sweep(l.aborted.Load()) // a concurrent Abort may not have reached s yet
		s.wait()
	})
}

// busy reports whether a callback is running.
func (l *Local) busy() bool {
	n := 0
	l.each(func(s *shard) {
		s.mu.Lock()
		defer s.mu.Unlock()
		n += s.run.n
	})
	return n > 0
}

// each calls f for every shard that was made.
func (l *Local) each(f func(*shard)) {
	if t := l.table.Load(); t != nil {
		for i := range t {
			if s := t[i].Load(); s != nil {
				f(s)
			}
		}
	}
}

// abortStatus returns the error of an aborted step. An Aborted of no kind gets that of a step that has ended.
func abortStatus(err error) *status.Error {
	e := status.From(err)
	if e == nil {
		e = status.New(status.Aborted, "the step was aborted without a reason")
	}
	if e.Code() == status.Aborted && status.KindOf(e) == nil {
		return e.WithKind(status.ErrStepEnded)
	}
	return e
}
