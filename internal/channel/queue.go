package channel

// queue is a first-in, first-out queue. It reuses its memory.
type queue[T any] struct {
	ring  []T
	head  int
	n     int
	looks int // accesses to elements: the cost of an event, for tests
}

func (q *queue[T]) push(x T) {
	if q.n == len(q.ring) {
		ring := make([]T, max(8, 2*len(q.ring)))
		for i := range q.n {
			ring[i] = q.ring[(q.head+i)%len(q.ring)]
		}
		q.ring, q.head = ring, 0
	}
	q.ring[(q.head+q.n)%len(q.ring)] = x
	q.n++
}

// at returns the i-th element from the oldest, from 0. It must exist.
func (q *queue[T]) at(i int) *T {
	q.looks++
	return &q.ring[(q.head+i)%len(q.ring)]
}

// pop removes the oldest element. There must be one.
func (q *queue[T]) pop() T {
	q.looks++
	x := q.ring[q.head]
	q.head = (q.head + 1) % len(q.ring)
	q.n--
	return x
}
