// Package idle gives memory back that is kept for later use and that nothing has used for a
// while. What keeps memory has a Timer, which runs only while there is something to give back:
// an idle process has none.
package idle

import (
	"sync"
	"sync/atomic"
	"time"
)

// DefaultTime is how long memory is kept without use before it goes back to the system. A pause
// between two steps or pulls is usually shorter. What takes longest to get again is registered
// memory: some ten milliseconds for 64 MiB, about 1 % of this time for a pool of 1 GiB.
const DefaultTime = 10 * time.Second

// Timer calls a function at intervals from Start on, until the function has nothing more to do.
// All methods are safe for concurrent use.
type Timer struct {
	every time.Duration
	sweep func(late time.Duration) (more bool)
	armed atomic.Bool

	sweeping sync.Mutex // held during a sweep; also orders the memory accesses of one with those of the next
}

// NewTimer returns a Timer that is not started. It calls sweep on a goroutine of its own, never
// twice at a time. late is how much later it is called than
// it was due: long, if the process was stopped. When sweep returns false the timer ends until the
// next Start.
func NewTimer(every time.Duration, sweep func(late time.Duration) (more bool)) *Timer {
	return &Timer{every: every, sweep: sweep}
}

// Start starts the timer if it does not run. Call it when there is something to give back; it
// costs little when the timer runs already.
func (t *Timer) Start() {
	if t.armed.Load() || t.armed.Swap(true) {
		return
	}
	due := time.Now().Add(t.every)
	time.AfterFunc(t.every, func() {
		t.armed.Store(false) // before the sweep: a Start that the sweep does not see starts it again
		t.sweeping.Lock()
		more := t.sweep(time.Since(due))
		t.sweeping.Unlock()
		if more {
			t.Start()
		}
	})
}

// Running reports whether the timer runs.
func (t *Timer) Running() bool { return t.armed.Load() }
