package channel

// queue is a first-in, first-out queue that keeps its memory.
type queue[T any] struct {
	ring []T
	head int
	n    int
}

func (q *queue[T]) push(x T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(8, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = *q.at(i)
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = x
	q.n++
}

// at is the i-th, from the oldest. It must be there.
func (q *queue[T]) at(i int) *T { return &q.ring[(q.head+i)%len(q.ring)] }

// pop takes the oldest. There must be one.
func (q *queue[T]) pop() T {
	x := q.ring[q.head]
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return x
}

// drop takes x out, wherever it stands.
func drop[T comparable](q *queue[T], x T) {
	kept := 0
	for i := range q.n {
		if v := *q.at(i); v != x {
			*q.at(kept) = v
			kept++
		}
	}
	q.n = kept
}
