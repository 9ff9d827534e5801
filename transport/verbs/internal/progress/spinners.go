package progress

import (
	"runtime"
	"sync/atomic"
)

// Spinners bounds how many goroutines spin at a time, over all queues that share it.
// Beyond half of the processors spinning costs the rest of the process more than it
// gains. It may be used from any goroutine.
type Spinners struct {
	n     atomic.Int32
	limit int32
}

// NewSpinners allows limit goroutines to spin. 0 means half of GOMAXPROCS, rounded down,
// which is none on one processor.
func NewSpinners(limit int) *Spinners {
	if limit == 0 {
		limit = runtime.GOMAXPROCS(0) / 2
	}
	return &Spinners{limit: int32(limit)} //nolint:gosec // some processors
}

// enter reports whether one more goroutine may spin. If so, it calls leave afterwards.
func (s *Spinners) enter() bool {
	if s.n.Add(1) <= s.limit {
		return true
	}
	s.n.Add(-1)
	return false
}

// replace is enter for a goroutine in place of another one that is about to leave.
func (s *Spinners) replace() { s.n.Add(1) }

func (s *Spinners) leave() { s.n.Add(-1) }

// free reports whether one more goroutine may spin.
func (s *Spinners) free() bool { return s.n.Load() < s.limit }

// Spinning is the number of goroutines that spin now.
func (s *Spinners) Spinning() int { return int(s.n.Load()) }
