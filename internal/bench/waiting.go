package bench

import (
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/transport"
)

// addWaiting adds the row of n keys that were put to wait in a time, and take
// so much memory together.
func (s *suite) addWaiting(name string, n int, took time.Duration, memory int64) {
	r := rowOf(name, &outcome{run: run{count: int64(n), time: took}})
	r.Transport, r.Better = s.now.transport, Lower
	r.Size = memory / int64(n)
	r.Inflight = n
	s.add(r)
}

// waitingValue measures the memory of a value that waits for its receive, in a
// step of this process. The tensor is not counted: it is there anyway.
func (s *suite) waitingValue(context.Context) error {
	t, err := scalar()
	if err != nil {
		return err
	}
	return s.localWaiting(func(r *rendezvous.BaseRemote, key rendezvous.Key) error {
		return r.Send(key, rendezvous.Args{}, t, false)
	})
}

// waitingReceive measures the memory of a receive that waits for its value, and
// may be cancelled.
func (s *suite) waitingReceive(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return s.localWaiting(func(r *rendezvous.BaseRemote, key rendezvous.Key) error {
		r.RecvAsync(ctx, key, rendezvous.Args{}, func(rendezvous.Value, rendezvous.Args, error) {})
		return nil
	})
}

// localWaiting puts keys to wait in a step.
func (s *suite) localWaiting(put func(*rendezvous.BaseRemote, rendezvous.Key) error) error {
	s.say("%d keys at once", s.waiting)
	m := localManager()
	defer m.Close()
	keys, err := keysOf(0, s.waiting)
	if err != nil {
		return err
	}
	step := m.Find(benchStep)
	before, begin := memory(), time.Now()
	for _, key := range keys {
		if err := put(step, key); err != nil {
			return err
		}
	}
	took := time.Since(begin)
	s.addWaiting(s.now.name, len(keys), took, memory()-before)
	runtime.KeepAlive(keys) // they count before and after
	return nil
}

// waitingKept measures the memory of a peer's receive that waits here, in the
// response cache and in the step, without its call.
func (s *suite) waitingKept(context.Context) error {
	s.say("%d keys at once", s.waiting)
	m := localManager()
	defer m.Close()
	cache := delivery.NewResponseCache(m, delivery.CacheOptions{})
	defer cache.Close()
	keys, err := keysOf(0, s.waiting)
	if err != nil {
		return err
	}
	requester := transport.Process{Name: "/job:worker/replica:0/task:1", Incarnation: 1}
	before, begin := memory(), time.Now()
	for i, key := range keys {
		cache.Request(nobody{}, transport.Request{Requester: requester, ID: uint64(i + 1), Attempt: 1, Step: benchStep, Key: key})
	}
	took := time.Since(begin)
	s.addWaiting(s.now.name, len(keys), took, memory()-before)
	runtime.KeepAlive(keys) // they count before and after
	return nil
}

// nobody takes no response.
type nobody struct{}

// Reply implements transport.Replier.
func (nobody) Reply(uint64, uint32, transport.Response) {}

// waitingRemote measures what a receive that waits costs on both sides, with
// its call.
func (s *suite) waitingRemote(ctx context.Context) (err error) {
	p, ctx, err := s.pair(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.close()) }()
	s.say("%d keys at once, memory of both processes", s.waiting)
	first, err := p.wait(ctx, 1) // what a first receive makes once is not counted
	if err == nil {
		err = p.send(ctx, first, 1)
	}
	if err != nil {
		return ended(ctx, err)
	}
	before, err := p.child.obey(ctx, command{})
	if err != nil {
		return ended(ctx, err)
	}
	here, begin := memory(), time.Now()
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	w, err := p.wait(waiting, s.waiting)
	if err != nil {
		return ended(ctx, err)
	}
	took := time.Since(begin)
	after, err := p.child.obey(ctx, command{})
	if err != nil {
		return ended(ctx, err)
	}
	s.addWaiting(s.now.name+"-receiver", s.waiting, took, memory()-here)
	s.addWaiting(s.now.name+"-sender", s.waiting, took, after.Memory-before.Memory)
	cancel()
	w.work.Wait()
	return nil
}
