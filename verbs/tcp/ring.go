package tcp

// ring holds the entries of a queue by their number. It grows on use, since queues are long
// and mostly empty.
type ring[T any] struct{ slots []T }

// at returns the slot of a number in use.
func (r *ring[T]) at(number uint64) *T { return &r.slots[number%uint64(len(r.slots))] }

// grow makes space for one more entry. The numbers from oldest to next are in use; the
// caller ensures that they are fewer than limit.
func (r *ring[T]) grow(oldest, next uint64, limit int) {
	if next-oldest < uint64(len(r.slots)) {
		return
	}
	slots := make([]T, min(max(2*len(r.slots), minRing), limit))
	for i := oldest; i < next; i++ {
		slots[i%uint64(len(slots))] = *r.at(i)
	}
	r.slots = slots
}
