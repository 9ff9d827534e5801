package poll

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Spinners bounds how many goroutines spin at a time, over all queues that it is
// given to: beyond half of the processors they take away more than they gain. It
// may be used from any goroutine.
type Spinners struct {
	n, limit atomic.Int32
	asked    atomic.Uint32
	fixed    bool
}

// NewSpinners allows limit of them; with 0 half of GOMAXPROCS, rounded down, and
// none when that is 1.
func NewSpinners(limit int) *Spinners {
	s := &Spinners{fixed: limit > 0}
	s.limit.Store(int32(limit))
	if !s.fixed {
		s.limit.Store(int32(runtime.GOMAXPROCS(0) / 2))
	}
	return s
}

// enter reports whether one more may spin; then it leaves later.
func (s *Spinners) enter() bool {
	// GOMAXPROCS follows the container's quota. To ask takes the scheduler's
	// lock, so it is not asked every time.
	if !s.fixed && s.asked.Add(1)%1024 == 0 {
		s.limit.Store(int32(runtime.GOMAXPROCS(0) / 2))
	}
	if s.n.Add(1) <= s.limit.Load() {
		return true
	}
	s.n.Add(-1)
	return false
}

// replace lets one more spin in place of another that is about to leave.
func (s *Spinners) replace() { s.n.Add(1) }

func (s *Spinners) leave() { s.n.Add(-1) }

// Spinning is how many spin now.
func (s *Spinners) Spinning() int { return int(s.n.Load()) }

// budget says how long to spin for something that took so and so long before. It
// may be used from any goroutine; a sample that gets lost does no harm.
type budget struct {
	longest  time.Duration
	ewma     atomic.Int64 // ns; of samples cut at twice longest
	pressure atomic.Int32 // 0 to maxPressure
	calm     atomic.Int32 // waits without a slow yield since pressure last changed
}

// spin is how long to spin now; 0 when that is not worth it.
func (b *budget) spin() time.Duration {
	p := b.pressure.Load()
	if p >= maxPressure {
		b.waited()
		return 0
	}
	expected := time.Duration(b.ewma.Load())
	if expected > b.longest {
		return 0 // it would not come while we spin
	}
	return b.longest >> p
}

// observe tells how long it took this time, spinning or not.
func (b *budget) observe(d time.Duration) {
	d = min(max(d, 0), 2*b.longest) // so that one long transfer is soon forgotten
	old := b.ewma.Load()
	b.ewma.Store(old + (int64(d)-old)/ewmaParts)
}

// yielded tells how long a yield took while spinning.
func (b *budget) yielded(d time.Duration) {
	if d <= slowYield {
		return
	}
	b.calm.Store(0)
	if p := b.pressure.Load(); p < maxPressure {
		b.pressure.CompareAndSwap(p, p+1)
	}
}

// waited tells that a wait ended, or did not spin for the pressure.
func (b *budget) waited() {
	p := b.pressure.Load()
	if p == 0 {
		return
	}
	if b.calm.Add(1) >= calmWaits {
		b.calm.Store(0)
		b.pressure.CompareAndSwap(p, p-1)
	}
}
