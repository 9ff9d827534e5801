package checkpoint

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// sets has the memory of a watcher: one set of tensors for the version that the caller has, and one for the next. A
// version takes one, and its Release gives it back.
type sets struct {
	alloc tensor.Allocator

	free chan *set // those that no version has

	mu     sync.Mutex
	closed bool // guarded by mu: what comes back is released
}

// set is memory for the tensors of a version, by name.
type set struct {
	own    bool // of the watcher: it has a reference to each, and replaces what does not fit
	memory map[string]*tensor.Tensor
	known  *known // what is in memory
}

func newSet(own bool, memory map[string]*tensor.Tensor) *set {
	return &set{own: own, memory: memory, known: newKnown(memory)}
}

// newSets returns the sets of a watcher: those of its caller, or two of its own.
func newSets(a tensor.Allocator, into []map[string]*tensor.Tensor) *sets {
	s := &sets{alloc: a, free: make(chan *set, bufferedSets)}
	for _, m := range into {
		s.free <- newSet(false, m)
	}
	for len(into) == 0 && len(s.free) < bufferedSets {
		s.free <- newSet(true, make(map[string]*tensor.Tensor))
	}
	return s
}

// take waits for a set that no version has, and until no one else refers to its memory.
func (s *sets) take(ctx context.Context) (*set, error) {
	var one *set
	select {
	case one = <-s.free:
	case <-ctx.Done():
		return nil, status.Errorf(status.CodeOf(ctx.Err()), "the memory of both buffers is in use: Release gives that of a version back")
	}
	if err := waitUnique(ctx, one.memory); err != nil {
		s.put(one)
		return nil, err
	}
	return one, nil
}

// waitUnique waits until nobody but its owner refers to memory. A peer may write into that of a pull that has failed for
// a while.
func waitUnique(ctx context.Context, memory map[string]*tensor.Tensor) error {
	for _, t := range memory {
		if t == nil {
			continue // the pull says so
		}
		if err := t.Buffer().WaitUnique(ctx); err != nil {
			return err
		}
	}
	return nil
}

// put gives a set back.
func (s *sets) put(one *set) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		one.release()
		return
	}
	s.free <- one // never blocks: there is space for all
}

// close releases what no version has. The rest follows when it comes back.
func (s *sets) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for len(s.free) > 0 {
		(<-s.free).release()
	}
}

// release releases the memory of the watcher.
func (one *set) release() {
	if !one.own {
		return
	}
	for _, t := range one.memory {
		t.Release()
	}
	one.memory = nil
}

// fit gives the set memory for the chosen tensors of a manifest, and for no others. What fits already stays.
func (one *set) fit(m *Manifest, chosen []int, a tensor.Allocator) (map[string]*tensor.Tensor, error) {
	keep := make(map[string]*TensorInfo, len(chosen))
	for _, i := range chosen {
		if e := &m.Entries[i]; e.DType.Plain() {
			keep[e.Name] = e
		}
	}
	for name, t := range one.memory { // first, so that there is room for the new ones
		if e := keep[name]; e == nil || t.DType() != e.DType || !t.Shape().Equal(e.Shape) {
			one.known.forget(name)
			t.Release()
			delete(one.memory, name)
		}
	}
	missing := func(yield func(TensorInfo) bool) {
		for _, i := range chosen {
			if e := &m.Entries[i]; keep[e.Name] != nil && one.memory[e.Name] == nil && !yield(*e) {
				return
			}
		}
	}
	more, err := TensorsFor(slices.Values(slices.Collect(missing)), a)
	if err != nil {
		return nil, err
	}
	maps.Copy(one.memory, more)
	return one.memory, nil
}
