package rendezvous

import "container/heap"

// restored holds the values of one key that were matched to receives which were then
// cancelled. They were sent before all values in the key's queue and may be restored in any
// order. The heap's top is the value that was sent first.
type restored []*entry

// before reports whether one value of a key was sent before another. The sequence numbers wrap
// at 2³²; the values that a table holds at one time are less than 2³¹ apart.
func (e *entry) before(other *entry) bool { return int32(e.seq-other.seq) < 0 } //nolint:gosec // see above

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (r restored) Len() int           { return len(r) }
func (r restored) Less(i, j int) bool { return r[i].before(r[j]) }
func (r restored) Swap(i, j int)      { r[i], r[j] = r[j], r[i] }
func (r *restored) Push(e any)        { *r = append(*r, e.(*entry)) } //nolint:errcheck,forcetypeassert // heap.Push gets one
func (r *restored) Pop() any {
	last := len(*r) - 1
	e := (*r)[last]
	(*r)[last] = nil
	*r = (*r)[:last]
	return e
}

// restoreLocked adds a restored value.
func (s *shard) restoreLocked(e *entry) {
	if s.restored == nil {
		s.restored = make(map[string]*restored)
	}
	r := s.restored[e.key]
	if r == nil {
		r = new(restored)
		s.restored[e.key] = r
	}
	heap.Push(r, e)
}

// takeRestoredLocked removes and returns the restored value of a key that was sent first, nil
// when there is none.
func (s *shard) takeRestoredLocked(key string) *entry {
	r := s.restored[key]
	if r == nil {
		return nil
	}
	e := heap.Pop(r).(*entry) //nolint:errcheck,forcetypeassert // they all are
	if r.Len() == 0 {
		if delete(s.restored, key); len(s.restored) == 0 {
			s.restored = nil
		}
	}
	return e
}
