//go:build linux

package shm

// slots is a queue of work requests. Requests have consecutive numbers. Memory for them is
// allocated when it is needed.
type slots[T any] struct{ list []T }

// at returns the slot of a number in use.
func (s *slots[T]) at(number uint64) *T { return &s.list[number%uint64(len(s.list))] }

// grow makes space for one more entry. The numbers from oldest to next are in use; the caller
// ensures that they are fewer than limit.
func (s *slots[T]) grow(oldest, next uint64, limit int) {
	if next-oldest < uint64(len(s.list)) {
		return
	}
	list := make([]T, min(max(2*len(s.list), minSlots), limit))
	for i := oldest; i < next; i++ {
		list[i%uint64(len(list))] = *s.at(i)
	}
	s.list = list
}
