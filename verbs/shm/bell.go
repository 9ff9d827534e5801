//go:build linux

package shm

import (
	"sync"
	"sync/atomic"
)

// bell says in the ring whether the peer must wake this side (atAsleep): the word is odd while the
// goroutine of run sleeps and nobody polls.
type bell struct {
	mu     sync.Mutex
	word   *atomic.Uint64 // nil when the memory of the ring is gone
	value  uint64         // of the word
	sleeps bool           // run sleeps, or is about to
}

// sleeps records that run is about to sleep, or is awake. Who goes to sleep looks at the rings again
// afterwards.
func (q *qp) sleeps(l *connection, on bool) {
	l.bell.mu.Lock()
	defer l.bell.mu.Unlock()
	l.bell.sleeps = on
	l.bell.setLocked(q.pollers.Load() > 0)
}

// Polled implements soft.Driven.
func (q *qp) Polled(change int32) {
	q.pollers.Add(change)
	l := q.live.Load()
	if l == nil {
		return
	}
	l.bell.mu.Lock()
	defer l.bell.mu.Unlock()
	l.bell.setLocked(q.pollers.Load() > 0)
}

// setLocked changes the word if what it says is not true any more.
func (b *bell) setLocked(polls bool) {
	if asleep := b.sleeps && !polls; b.word != nil && asleep != (b.value%2 == 1) {
		b.value++
		b.word.Store(b.value)
	}
}

// end is called before the memory of the ring goes.
func (b *bell) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.word = nil
}
