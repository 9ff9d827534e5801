package verbstransport

// table stores values under handles, which start at 1 and are reused. The zero value is an
// empty table.
type table[T any] struct {
	slots []tableSlot[T]
	free  []uint64
}

type tableSlot[T any] struct {
	value T
	used  bool
}

// put stores a value and returns its handle.
func (t *table[T]) put(v T) uint64 {
	if n := len(t.free); n > 0 {
		h := t.free[n-1]
		t.free = t.free[:n-1]
		t.slots[h-1] = tableSlot[T]{v, true}
		return h
	}
	t.slots = append(t.slots, tableSlot[T]{v, true})
	return uint64(len(t.slots))
}

// get returns the value of a handle; false for 0 and for handles that are free.
func (t *table[T]) get(h uint64) (v T, ok bool) {
	if h == 0 || h > uint64(len(t.slots)) || !t.slots[h-1].used {
		return v, false
	}
	return t.slots[h-1].value, true
}

// take is get, and frees the handle.
func (t *table[T]) take(h uint64) (v T, ok bool) {
	if v, ok = t.get(h); ok {
		t.slots[h-1] = tableSlot[T]{}
		t.free = append(t.free, h)
	}
	return v, ok
}
