package soft

// minRing is the initial number of slots of a queue.
const minRing = 16

// Ring holds the entries of a queue by their consecutive numbers. It grows on use, since queues
// are long and mostly empty. The zero value is empty.
type Ring[T any] struct{ slots []T }

// At returns the slot of a number in use. It is valid until the next Grow.
func (r *Ring[T]) At(number uint64) *T { return &r.slots[number%uint64(len(r.slots))] }

// Grow makes space for one more entry. The numbers from oldest to next are in use; the caller
// ensures that they are fewer than limit.
func (r *Ring[T]) Grow(oldest, next uint64, limit int) {
	if next-oldest < uint64(len(r.slots)) {
		return
	}
	slots := make([]T, min(max(2*len(r.slots), minRing), limit))
	for i := oldest; i < next; i++ {
		slots[i%uint64(len(slots))] = *r.At(i)
	}
	r.slots = slots
}
