package checkpoint

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/tryst-rdma/tryst/internal/delta"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// slowSink makes tensors as slowly as the test wants.
type slowSink struct {
	sink
	pl   *pull
	next chan struct{}

	mu                             sync.Mutex
	begun, now, failed, made, gave int // guarded by mu
}

func (s *slowSink) add(n *int, by int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n += by
}

func (s *slowSink) has(part) bool     { return false }
func (s *slowSink) weight(part) int64 { return 0 }
func (s *slowSink) begin(part)        { s.add(&s.begun, 1) }
func (s *slowSink) lost(part) int64   { s.add(&s.failed, 1); return 0 }

func (s *slowSink) patch(ctx context.Context, _ part, deltas []*tensor.Tensor) (bool, error) {
	a, err := s.pl.applier()
	if err != nil {
		return false, err
	}
	defer s.pl.giveBack(a)
	s.add(&s.now, 1)
	defer s.add(&s.now, -1)
	select {
	case <-s.next:
		s.add(&s.made, 1)
		s.add(&s.gave, len(deltas))
		return true, nil
	case <-ctx.Done():
		return false, context.Cause(ctx)
	}
}

// newBatch returns a batch of a pull with a window of so many receives.
func newBatch(ctx context.Context, pl *pull, to sink, s *session) *batch {
	r := &batch{
		pl: pl, session: s, to: to,
		receives: semaphore.NewWeighted(int64(pl.req.Inflight)), applies: semaphore.NewWeighted(int64(pl.req.Inflight)),
	}
	r.group, r.ctx = errgroup.WithContext(ctx)
	return r
}

// Appliers, and the goroutines that wait for one, are as many as receives, however many tensors have deltas.
func TestAppliersAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const inflight, tensors = 3, 100
		pl := &pull{manifest: &Manifest{Entries: make([]TensorInfo, tensors)}, req: PullRequest{Inflight: inflight}}
		s := &slowSink{pl: pl, next: make(chan struct{})}
		r := newBatch(t.Context(), pl, s, nil)
		var parts []part
		for i := range tensors {
			parts = append(parts, part{i: i, way: &way{}})
		}
		go r.request(parts)
		for n := range tensors {
			synctest.Wait()
			s.mu.Lock()
			if s.now > inflight || s.begun-n > 2*inflight {
				t.Errorf("%d tensors are made at once, and %d wait", s.now, s.begun-n-s.now)
			}
			s.mu.Unlock()
			s.next <- struct{}{}
		}
		synctest.Wait()
		if err := r.group.Wait(); err != nil || s.made != tensors {
			t.Errorf("%d tensors were made: %v", s.made, err)
		}
		if n := len(pl.patches.appliers); n != inflight {
			t.Errorf("%d appliers, want %d", n, inflight)
		}
	})
}

// A session that ends while tensors wait for an applier ends with its reason.
func TestTensorsThatWaitForAnApplierEndWithTheirSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pl := &pull{manifest: &Manifest{Entries: make([]TensorInfo, 4)}, req: PullRequest{Inflight: 1}}
		pl.limit(1 << 20)
		s := &slowSink{pl: pl, next: make(chan struct{})}
		ctx, end := context.WithCancelCause(t.Context())
		r := newBatch(ctx, pl, s, nil)
		go r.request([]part{{i: 0, way: &way{}}, {i: 1, way: &way{}}, {i: 2, way: &way{}}, {i: 3, way: &way{}}})
		synctest.Wait()
		why := errors.New("it ends")
		end(why)
		if err := r.group.Wait(); !errors.Is(err, why) || s.made != 0 || s.failed != 1 {
			t.Errorf("%v; %d were made, and %d that waited have failed", err, s.made, s.failed)
		}
	})
}

// breaking receives deltas, and breaks after some of them.
type breaking struct {
	Receiver
	after int
	alloc tensor.Allocator
}

func (b *breaking) RecvAsync(_ context.Context, _ int64, _ rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	if b.after--; b.after < 0 {
		done(rendezvous.Value{}, args, errors.New("it broke"))
		return
	}
	i := rendezvous.IntoOf(args)
	x, err := tensor.Allocate(b.alloc, tensor.Uint8, tensor.Vector(100))
	if err == nil {
		err = errors.Join(i.Claim(), i.Check(x.DType(), x.Shape()))
	}
	if err != nil {
		done(rendezvous.Value{}, args, err)
		return
	}
	v := rendezvous.Value{Tensor: i.Copy(x)}
	i.End(func(f func()) { f() })
	done(v, args, nil)
}

// The deltas of a path that have come are released when a later one does not come: they cannot be applied alone.
func TestDeltasOfAPathThatBreaksAreReleased(t *testing.T) {
	alloc := tensortest.NewAllocator(t) // which fails the test for what is not released
	pl := &pull{
		p:        NewPuller(PullerOptions{Allocator: alloc}),
		manifest: &Manifest{Entries: []TensorInfo{{Name: "t", DType: tensor.Uint8, Shape: tensor.Vector(1000), Bytes: 1000}}},
		req:      PullRequest{Inflight: 1},
	}
	s := &slowSink{pl: pl, next: make(chan struct{}, 1)}
	s.next <- struct{}{}
	r := newBatch(t.Context(), pl, s, &session{receiver: &breaking{after: 2, alloc: tensor.Heap{}}})
	steps := make([]deltaPart, 3)
	for i := range steps {
		steps[i] = deltaPart{bytes: 100, result: []byte("digest"), method: delta.Sparse}
	}
	if err := r.receives.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if _, err := r.patch(part{i: 0, way: &way{steps: steps}}); err != nil || s.gave != 0 || s.failed != 0 {
		t.Errorf("%v; the sink got %d deltas, and %d parts were lost", err, s.gave, s.failed)
	}
	if n := alloc.Outstanding(); n != 0 {
		t.Errorf("%d deltas are not released", n)
	}
}
