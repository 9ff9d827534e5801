package bench

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

const (
	// matchTarget is how many times as long as the locked map a matched Send
	// and Recv may take.
	matchTarget = 4
	// matchAllocs is how often a matched Send and Recv may allocate.
	matchAllocs = 2
	// gainTarget is how much of the gain that maps of their own have from a
	// second core a shared rendezvous should have.
	gainTarget = 0.8
)

// localTask and localIncarnation name this process in the local benchmarks.
var localTask = cluster.Task{Job: "worker"}

const localIncarnation = 0x123456789abcdef0

func localManager() *rendezvous.Manager {
	return rendezvous.NewManager(rendezvous.ManagerOptions{Session: rendezvous.NewSession(localTask, localIncarnation, 1)})
}

// keysOf returns n keys of localKeyBytes within this process, others for each
// goroutine.
func keysOf(goroutine, n int) ([]rendezvous.Key, error) {
	keys := make([]rendezvous.Key, n)
	device := cluster.DeviceOf(localTask)
	for i := range keys {
		name := fmt.Sprintf("edge_%d_%06d_", goroutine, i)
		bare, err := rendezvous.NewKey(device, localIncarnation, device, name, rendezvous.FrameIter{})
		if err != nil {
			return nil, err
		}
		name += strings.Repeat("x", max(localKeyBytes-len(bare.String()), 0))
		if keys[i], err = rendezvous.NewKey(device, localIncarnation, device, name, rendezvous.FrameIter{}); err != nil {
			return nil, err
		}
		if n := len(keys[i].String()); n != localKeyBytes {
			return nil, status.Errorf(status.Internal, "a key has %d bytes, not %d", n, localKeyBytes)
		}
	}
	return keys, nil
}

// scalar returns a tensor of 8 bytes.
func scalar() (*tensor.Tensor, error) {
	return tensor.FromBytes(tensor.Int64, tensor.Shape{}, make([]byte, 8))
}

// lockedMap is the baseline: what the same keys cost in a plain map.
type lockedMap struct {
	mu sync.Mutex
	m  map[string]*tensor.Tensor
}

func (l *lockedMap) insertDelete(key string, t *tensor.Tensor) {
	l.mu.Lock()
	l.m[key] = t
	l.mu.Unlock()
	l.mu.Lock()
	delete(l.m, key)
	l.mu.Unlock()
}

// matched returns a side of goroutines that send and receive, value first, in
// one step, each with keys of its own.
func matched(step *rendezvous.BaseRemote, goroutines int) (side, error) {
	keys, tensors, err := localInputs(goroutines)
	if err != nil {
		return nil, err
	}
	ctx := context.Background() // that of a local receive which nobody cancels
	return load(goroutines, localBatch, func(_ context.Context, worker, n int) error {
		keys, t := keys[worker], tensors[worker]
		for i := range n {
			key := keys[i%localKeys]
			if err := step.Send(key, rendezvous.Args{}, t, false); err != nil {
				return err
			}
			v, err := step.Recv(ctx, key, rendezvous.Args{})
			if err != nil {
				return err
			}
			v.Tensor.Release()
		}
		return nil
	}), nil
}

// privateMaps returns a side of goroutines that each have a map of their own.
func privateMaps(goroutines int) (side, error) {
	keys, tensors, err := localInputs(goroutines)
	if err != nil {
		return nil, err
	}
	own := make([]*lockedMap, goroutines) // each on a cache line of its own
	for i := range own {
		own[i] = &lockedMap{m: make(map[string]*tensor.Tensor)}
	}
	return load(goroutines, localBatch, func(_ context.Context, worker, n int) error {
		l, keys, t := own[worker], keys[worker], tensors[worker]
		for i := range n {
			l.insertDelete(keys[i%localKeys].String(), t)
		}
		return nil
	}), nil
}

// localInputs returns keys and a tensor for each goroutine.
func localInputs(goroutines int) (keys [][]rendezvous.Key, tensors []*tensor.Tensor, err error) {
	for g := range goroutines {
		k, err := keysOf(g, localKeys)
		if err != nil {
			return nil, nil, err
		}
		t, err := scalar()
		if err != nil {
			return nil, nil, err
		}
		keys, tensors = append(keys, k), append(tensors, t)
	}
	return keys, tensors, nil
}

// localMatch sets a matched Send and Recv against a locked map.
func (s *suite) localMatch(ctx context.Context) error {
	m := localManager()
	defer m.Close()
	ours, err := matched(m.Find(benchStep), 1)
	if err != nil {
		return err
	}
	theirs, err := privateMaps(1)
	if err != nil {
		return err
	}
	s.say("beside %s", LockedMap)
	c := s.contest()
	c.lower = true
	o, own, err := c.compare(ctx, ours, theirs)
	if err != nil {
		return err
	}
	s.addPair(&o, &own, LockedMap, Lower, matchTarget, func(r *Row) {
		r.Inflight = 1
		r.OK = r.OK && r.AllocsPerOp <= matchAllocs
	})
	return nil
}

// localGain compares what a second core brings: to goroutines that share one
// step, and to goroutines with maps of their own.
func (s *suite) localGain(ctx context.Context) error {
	m := localManager()
	defer m.Close()
	step := m.Find(benchStep)
	ours, err := gain(func(n int) (side, error) { return matched(step, n) })
	if err != nil {
		return err
	}
	theirs, err := gain(privateMaps)
	if err != nil {
		return err
	}
	s.say("of two cores, beside that of %s", LockedMap)
	o, own, err := s.contest().compare(ctx, ours, theirs)
	if err != nil {
		return err
	}
	s.addPair(&o, &own, LockedMap, Higher, gainTarget, func(r *Row) { r.Inflight = 2 })
	return nil
}

// gain returns a side whose score is how many times as much two goroutines do as
// one.
func gain(of func(goroutines int) (side, error)) (side, error) {
	one, err := of(1)
	if err != nil {
		return nil, err
	}
	two, err := of(2)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, d time.Duration) (run, error) {
		a, err := one(ctx, d)
		if err != nil {
			return run{}, err
		}
		b, err := two(ctx, d)
		b.score /= a.score
		return b, err
	}, nil
}
