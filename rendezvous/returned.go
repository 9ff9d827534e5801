package rendezvous

import "container/heap"

// returned are the values of one key that cancelled receives have given back. They were sent
// before all values that wait in the key's queue, and may come back in any order: the one
// that was sent first is on top of the heap.
type returned []*entry

// before reports whether one value of a key was sent before another. Their places are
// counters that may have passed 2³²; values that are alive together are never so far apart.
func (e *entry) before(other *entry) bool { return int32(e.at-other.at) < 0 } //nolint:gosec // see above

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (r returned) Len() int           { return len(r) }
func (r returned) Less(i, j int) bool { return r[i].before(r[j]) }
func (r returned) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *returned) Push(e any)        { *r = append(*r, e.(*entry)) } //nolint:errcheck,forcetypeassert // heap.Push gets one
func (r *returned) Pop() any {
	last := len(*r) - 1
	e := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return e
}

// returnLocked keeps a value that a receive has given back.
func (s *shard) returnLocked(e *entry) {
	if s.returned == nil {
		s.returned = make(map[string]*returned)
	}
	r := s.returned[e.key]
	if r == nil {
		r = new(returned)
		s.returned[e.key] = r
	}
	heap.Push(r, e)
}

// takeReturnedLocked takes the value of a key that was sent first, nil when there is none.
func (s *shard) takeReturnedLocked(key string) *entry {
	r := s.returned[key]
	if r == nil {
		return nil
	}
	e := heap.Pop(r).(*entry) //nolint:errcheck,forcetypeassert // they all are
	if r.Len() == 0 {
		if delete(s.returned, key); len(s.returned) == 0 {
			s.returned = nil
		}
	}
	return e
}
