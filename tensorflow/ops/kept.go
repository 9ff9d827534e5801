package ops

import (
	"container/list"
	"sync"
)

// kept are the objects that nodes of one session keep for themselves, such as the generators of random
// nodes. A node has one for all graphs of the session, as in TensorFlow. What no graph uses any more stays, up to
// maxUnused of them: a master registers graphs anew.
type kept[K comparable, V any] struct {
	mu sync.Mutex // guards the fields below, and those of each
	of map[K]*keptObject[K, V]
	// unused are the *keptObject of graphs that are gone, the longest unused first.
	unused list.List
}

// keptObject is one of them.
type keptObject[K comparable, V any] struct {
	key     K
	value   V
	kernels int           // that use it
	idle    *list.Element // in kept.unused, when no kernel uses it
}

// take returns the object of a key for a kernel, which gives it back to put. make makes it when it is new.
func (s *kept[K, V]) take(key K, make func() V) *keptObject[K, V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.of[key]
	if o == nil {
		s.init()
		o = &keptObject[K, V]{key: key, value: make()}
		s.of[key] = o
	}
	if o.idle != nil {
		s.unused.Remove(o.idle)
		o.idle = nil
	}
	o.kernels++
	return o
}

func (s *kept[K, V]) init() {
	if s.of == nil {
		s.of = make(map[K]*keptObject[K, V])
	}
}

// put ends the use by a kernel. It returns true and an object that the session forgets, if there is one.
func (s *kept[K, V]) put(o *keptObject[K, V]) (forgotten V, found bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o.kernels--; o.kernels > 0 {
		return forgotten, false
	}
	o.idle = s.unused.PushBack(o)
	if s.unused.Len() <= maxUnused {
		return forgotten, false
	}
	oldest, _ := s.unused.Remove(s.unused.Front()).(*keptObject[K, V])
	delete(s.of, oldest.key)
	return oldest.value, true
}

// all forgets all objects, and returns them.
func (s *kept[K, V]) all() []V {
	s.mu.Lock()
	defer s.mu.Unlock()
	var values []V
	for _, o := range s.of {
		values = append(values, o.value)
	}
	s.of = nil
	s.unused.Init()
	return values
}
