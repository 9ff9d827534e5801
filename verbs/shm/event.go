//go:build linux

package shm

import (
	"sync"

	"github.com/tryst-rdma/tryst/verbs"
)

// asyncQueue holds the asynchronous events of a device until NextEvent. A full queue
// loses the oldest.
type asyncQueue struct {
	mu     sync.Mutex
	events []verbs.AsyncEvent
	wake   chan struct{} // one token, sent when events is not empty
}

func (q *asyncQueue) push(e verbs.AsyncEvent) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == maxEvents {
		q.events = append(q.events[:0], q.events[1:]...)
	}
	q.events = append(q.events, e)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *asyncQueue) pop() (verbs.AsyncEvent, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) == 0 {
		return verbs.AsyncEvent{}, false
	}
	e := q.events[0]
	q.events = append(q.events[:0], q.events[1:]...)
	return e, true
}
