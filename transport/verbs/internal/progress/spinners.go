package progress

import (
	"runtime"
	"sync/atomic"
)

// Spinners bounds how many goroutines spin at a time, over all queues that share it:
// beyond half of the processors they take away more than they gain. It may be used
// from any goroutine.
type Spinners struct {
	n     atomic.Int32
	limit int32
}

// NewSpinners allows limit of them; with 0 half of GOMAXPROCS, rounded down, and
// none when that is 1.
func NewSpinners(limit int) *Spinners {
	if limit == 0 {
		limit = runtime.GOMAXPROCS(0) / 2
	}
	return &Spinners{limit: int32(limit)} //nolint:gosec // some processors
}

// enter reports whether one more goroutine may spin; then it leaves later.
func (s *Spinners) enter() bool {
	if s.n.Add(1) <= s.limit {
		return true
	}
	s.n.Add(-1)
	return false
}

// replace lets one more goroutine spin in place of another that is about to leave.
func (s *Spinners) replace() { s.n.Add(1) }

func (s *Spinners) leave() { s.n.Add(-1) }

// free reports whether one more goroutine may spin.
func (s *Spinners) free() bool { return s.n.Load() < s.limit }

// Spinning is how many goroutines spin now.
func (s *Spinners) Spinning() int { return int(s.n.Load()) }
