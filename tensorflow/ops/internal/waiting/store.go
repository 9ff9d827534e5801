package waiting

import "slices"

// Store is the order in which a queue gives its elements.
type Store[E any] interface {
	Len() int
	Push(e E)
	// Pop removes the next element. The store is not empty.
	Pop() E
	// Restore puts back elements that Pop has returned one after another, with nothing pushed between.
	Restore(elements []E)
}

// fifo gives elements in the order in which they came.
type fifo[E any] struct {
	elements []E
	first    int
}

// NewFIFO returns the store of FIFOQueue and PaddingFIFOQueue.
func NewFIFO[E any]() Store[E] { return &fifo[E]{} }

func (s *fifo[E]) Len() int { return len(s.elements) - s.first }

func (s *fifo[E]) Push(e E) {
	if s.first > 0 && len(s.elements) == cap(s.elements) && s.first >= len(s.elements)/2 {
		n := copy(s.elements, s.elements[s.first:])
		clear(s.elements[n:])
		s.elements, s.first = s.elements[:n], 0
	}
	s.elements = append(s.elements, e)
}

func (s *fifo[E]) Pop() E {
	e := s.elements[s.first]
	s.elements[s.first] = *new(E)
	if s.first++; s.first == len(s.elements) {
		s.elements, s.first = spare(s.elements), 0
	}
	return e
}

func (s *fifo[E]) Restore(elements []E) {
	s.elements = append(append(make([]E, 0, len(elements)+s.Len()), elements...), s.elements[s.first:]...)
	s.first = 0
}

// spare returns the memory of an empty store for the next elements, unless it is large.
func spare[E any](elements []E) []E {
	if cap(elements) > maxSpare {
		return nil
	}
	return elements[:0]
}

// maxSpare is how many places for elements an empty store keeps.
const maxSpare = 1024

// shuffled gives elements at random.
type shuffled[E any] struct {
	elements []E
	random   func() uint32
}

// NewShuffled returns the store of RandomShuffleQueue. random gives the numbers that choose.
func NewShuffled[E any](random func() uint32) Store[E] { return &shuffled[E]{random: random} }

func (s *shuffled[E]) Len() int { return len(s.elements) }

func (s *shuffled[E]) Push(e E) { s.elements = append(s.elements, e) }

func (s *shuffled[E]) Pop() E {
	i, last := int(uint64(s.random())%uint64(len(s.elements))), len(s.elements)-1 //nolint:gosec // below a length
	e := s.elements[i]
	s.elements[i], s.elements[last] = s.elements[last], *new(E)
	if s.elements = s.elements[:last]; last == 0 {
		s.elements = spare(s.elements)
	}
	return e
}

func (s *shuffled[E]) Restore(elements []E) {
	for _, e := range slices.Backward(elements) {
		s.Push(e)
	}
}

// heap gives the element with the smallest priority first. Those of the same priority come in the order of
// the heap of the C++ library that TensorFlow is built with (std::push_heap and std::pop_heap of libstdc++).
type heap[E any] struct {
	elements []E
	priority func(E) int64
}

// NewHeap returns the store of PriorityQueue.
func NewHeap[E any](priority func(E) int64) Store[E] { return &heap[E]{priority: priority} }

func (s *heap[E]) Len() int { return len(s.elements) }

func (s *heap[E]) Push(e E) {
	s.elements = append(s.elements, e)
	s.up(len(s.elements)-1, e)
}

// up moves e from the hole at i towards the root.
func (s *heap[E]) up(i int, e E) {
	for i > 0 {
		parent := (i - 1) / 2
		if s.priority(s.elements[parent]) <= s.priority(e) {
			break
		}
		s.elements[i] = s.elements[parent]
		i = parent
	}
	s.elements[i] = e
}

func (s *heap[E]) Pop() E {
	n := len(s.elements) - 1
	top, last := s.elements[0], s.elements[n]
	s.elements[n] = *new(E)
	s.elements = s.elements[:n]
	if n == 0 {
		s.elements = spare(s.elements)
		return top
	}
	hole := 0
	for child := 2; child < n; child = 2*hole + 2 {
		if s.priority(s.elements[child]) > s.priority(s.elements[child-1]) {
			child--
		}
		s.elements[hole] = s.elements[child]
		hole = child
	}
	if child := 2*hole + 1; child == n-1 { // the only child
		s.elements[hole] = s.elements[child]
		hole = child
	}
	s.up(hole, last)
	return top
}

func (s *heap[E]) Restore(elements []E) {
	for _, e := range elements {
		s.Push(e)
	}
}
