package mem

import "sync/atomic"

// sleeper is who calls Sweep, as long as there is something to sweep: a process that
// moves nothing has no timer that ticks.
type sleeper struct {
	asleep  atomic.Bool
	stirred chan struct{} // holds one
}

func newSleeper() *sleeper {
	s := &sleeper{stirred: make(chan struct{}, 1)}
	s.sleeps()
	return s
}

func (s *sleeper) sleeps() { s.asleep.Store(true) }

// stir wakes it. It does not block.
func (s *sleeper) stir() {
	if s.asleep.Load() && s.asleep.CompareAndSwap(true, false) {
		select {
		case s.stirred <- struct{}{}:
		default: // one is on its way
		}
	}
}
