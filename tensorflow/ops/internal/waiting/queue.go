package waiting

import (
	"slices"

	"github.com/tryst-rdma/tryst/status"
)

// Queue is the state of a queue. Each of its events returns the attempts that have ended by it, whose Done
// the caller then calls without its lock. It is not safe for concurrent use.
//
//	enqueues ──> elements ──> dequeues
//
// Of each side only the first attempt moves elements, so that no attempt overtakes another. One for many
// elements moves as many as it can, and then waits at the front.
type Queue[E any] struct {
	rules    Rules
	elements Store[E]
	closed   bool

	enqueues, dequeues []*Attempt[E] // that wait, the oldest first
}

// Rules are what never changes in a queue.
type Rules struct {
	// Kind and Name are for the texts of errors: "PaddingFIFOQueue", and the name of the resource. Base is the
	// kind in all but those about batches: "FIFOQueue" there.
	Kind, Base, Name string
	// Capacity is how many elements the queue holds at most.
	Capacity int
	// Stay is how many elements stay in the queue until it is closed.
	Stay int
	// Whole says that an attempt takes nothing before all that it wants is there.
	Whole bool
}

// Attempt is a wish to enqueue, to dequeue or to close. It is new for each, and nobody changes it before it has
// ended.
type Attempt[E any] struct {
	// Count is how many elements are to be moved, at least 1; 0 to close.
	Count int
	// Next gives element i of an enqueue when there is room for it. After an error the attempt ends with it.
	Next func(i int) (E, error)
	// Single says that a dequeue is for one element, not for a batch of one.
	Single bool
	// Small says that a dequeue takes less when the queue is closed and has no more.
	Small bool
	// Done is for the caller of the queue: what to do when the attempt has ended.
	Done func()

	// Elements are what a dequeue has taken. After an error they are lost, as in TensorFlow.
	Elements []E
	// Err is why the attempt has failed.
	Err error

	left  int  // how many elements are to be moved yet
	ended bool // Done is or will be called
	past  bool // a close that goes on without its caller
}

// Ended reports whether the attempt has ended.
func (a *Attempt[E]) Ended() bool { return a.ended }

// result is what a try of an attempt has led to.
type result int

const (
	waits result = iota
	moved
	complete
)

// NewQueue returns an empty queue that gives elements in the order of the store.
func NewQueue[E any](r Rules, s Store[E]) *Queue[E] { return &Queue[E]{rules: r, elements: s} }

// Len returns the number of elements, without those that waiting attempts have or have taken.
func (q *Queue[E]) Len() int { return q.elements.Len() }

// Closed reports whether the queue is closed.
func (q *Queue[E]) Closed() bool { return q.closed }

// Enqueue begins an attempt to add elements.
func (q *Queue[E]) Enqueue(a *Attempt[E]) []*Attempt[E] {
	a.left = a.Count
	q.enqueues = append(q.enqueues, a)
	return q.flush(nil)
}

// Dequeue begins an attempt to take elements.
func (q *Queue[E]) Dequeue(a *Attempt[E]) []*Attempt[E] {
	a.left = a.Count
	q.dequeues = append(q.dequeues, a)
	return q.flush(nil)
}

// Close begins an attempt to close the queue after the enqueues that wait.
func (q *Queue[E]) Close(a *Attempt[E]) []*Attempt[E] {
	q.enqueues = append(q.enqueues, a)
	return q.flush(nil)
}

// CloseNow closes the queue and ends the attempt to do so, and cancels the enqueues that wait. What they have
// added stays.
func (q *Queue[E]) CloseNow(a *Attempt[E]) []*Attempt[E] {
	q.closed = true
	ended := end(nil, a, nil)
	for _, a := range q.enqueues {
		ended = end(ended, a, errCancelled("Enqueue"))
	}
	q.enqueues = nil
	return q.flush(ended)
}

// Cancel ends an attempt that waits. A close takes place all the same, later.
func (q *Queue[E]) Cancel(a *Attempt[E]) []*Attempt[E] {
	if a.ended {
		return nil
	}
	if i := slices.Index(q.dequeues, a); i >= 0 {
		q.dequeues = slices.Delete(q.dequeues, i, i+1)
		return q.flush(end(nil, a, errCancelled("Dequeue")))
	}
	i := slices.Index(q.enqueues, a)
	if i < 0 {
		return nil
	}
	if a.Count > 0 {
		q.enqueues = slices.Delete(q.enqueues, i, i+1)
		return q.flush(end(nil, a, errCancelled("Enqueue")))
	}
	ended := end(nil, a, errCancelled("Close"))
	if a.past = true; slices.ContainsFunc(q.enqueues[:i], func(b *Attempt[E]) bool { return b.Count == 0 }) {
		q.enqueues = slices.Delete(q.enqueues, i, i+1) // an earlier one closes the queue
	}
	return ended
}

// Drop ends all attempts with an error, and returns the elements. The queue is closed.
func (q *Queue[E]) Drop(err error) (ended []*Attempt[E], elements []E) {
	q.closed = true
	for _, a := range slices.Concat(q.enqueues, q.dequeues) {
		ended = end(ended, a, err)
	}
	q.enqueues, q.dequeues = nil, nil
	for q.elements.Len() > 0 {
		elements = append(elements, q.elements.Pop())
	}
	return ended, elements
}

func errCancelled(what string) error {
	return status.Errorf(status.Cancelled, "%s operation was cancelled", what)
}

// end appends a to the ended attempts.
func end[E any](ended []*Attempt[E], a *Attempt[E], err error) []*Attempt[E] {
	if a.past {
		return ended
	}
	a.ended, a.Err = true, err
	return append(ended, a)
}

// flush tries the attempts on both sides until nothing moves any more.
func (q *Queue[E]) flush(ended []*Attempt[E]) []*Attempt[E] {
	for {
		in := q.try(&q.enqueues, q.enqueue, &ended)
		out := q.try(&q.dequeues, q.dequeue, &ended)
		if !in && !out {
			return ended
		}
	}
}

// try tries the attempts of one side, the oldest first, until one has to wait. It reports whether anything
// has moved or ended.
func (q *Queue[E]) try(side *[]*Attempt[E], step func(*Attempt[E]) (result, error), ended *[]*Attempt[E]) (changed bool) {
	for len(*side) > 0 {
		a := (*side)[0]
		r, err := step(a)
		if r != complete {
			return changed || r == moved
		}
		changed = true
		*ended = end(*ended, a, err)
		(*side)[0] = nil
		*side = (*side)[1:]
	}
	*side = nil
	return changed
}

// enqueue moves elements into the queue, or closes it.
func (q *Queue[E]) enqueue(a *Attempt[E]) (result, error) {
	switch {
	case a.Count == 0 && q.closed:
		return complete, status.Errorf(status.Cancelled, "Queue '%s' is already closed.", q.rules.Name)
	case a.Count == 0:
		q.closed = true
		return complete, nil
	case q.closed:
		return complete, status.Errorf(status.Cancelled, "%s '%s' is closed.", q.rules.Base, q.rules.Name)
	}
	r := waits
	for q.elements.Len() < q.rules.Capacity {
		e, err := a.Next(a.Count - a.left)
		if err != nil {
			return complete, err
		}
		q.elements.Push(e)
		if r, a.left = moved, a.left-1; a.left == 0 {
			return complete, nil
		}
	}
	return r, nil
}

// dequeue moves elements out of the queue.
func (q *Queue[E]) dequeue(a *Attempt[E]) (result, error) {
	if q.rules.Whole && !a.Single {
		return q.dequeueWhole(a)
	}
	size := q.elements.Len()
	if q.closed && size < a.left {
		q.elements.Restore(a.Elements)
		a.Elements = nil
		switch restored := q.elements.Len(); {
		case a.Small && restored > 0:
			size, a.left = restored, restored
		case a.Small && len(q.enqueues) > 0:
			return moved, nil // let the enqueues end first
		default:
			return complete, q.short(a, size)
		}
	}
	if !q.closed {
		size -= q.rules.Stay
	}
	r := waits
	for ; size > 0; size-- {
		a.Elements = append(a.Elements, q.elements.Pop())
		if r, a.left = moved, a.left-1; a.left == 0 {
			return complete, nil
		}
	}
	return r, nil
}

// dequeueWhole takes all elements at once, so that a batch is sorted.
func (q *Queue[E]) dequeueWhole(a *Attempt[E]) (result, error) {
	size := q.elements.Len()
	switch {
	case q.closed && (size == 0 || size < a.left && !a.Small):
		return complete, q.short(a, size)
	case size < a.left && (!q.closed || !a.Small):
		return waits, nil
	}
	for ; size > 0; size-- {
		a.Elements = append(a.Elements, q.elements.Pop())
		if a.left--; a.left == 0 {
			return complete, nil
		}
	}
	return moved, nil // TensorFlow's queue tries again, and finds itself empty: the attempt fails
}

// short is the error of a dequeue from a closed queue.
func (q *Queue[E]) short(a *Attempt[E], size int) error {
	kind := q.rules.Kind
	if a.Single {
		kind = q.rules.Base
	}
	return status.Errorf(status.OutOfRange, "%s '%s' is closed and has insufficient elements (requested %d, current size %d)",
		kind, q.rules.Name, a.left, size)
}
