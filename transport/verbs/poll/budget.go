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

// alone reports whether there is one processor, where others run only when who spins
// lets them.
func (s *Spinners) alone() bool { return s.limit.Load() == 0 }

// Spinning is how many spin now.
func (s *Spinners) Spinning() int { return int(s.n.Load()) }

// budget says how long to spin for something that took so and so long before. It
// may be used from any goroutine; a sample that gets lost does no harm.
//
// How long something takes depends on whether one spins: who sleeps has to be woken,
// and so has the peer, if it learns to sleep from that. What takes too long asleep
// would so never be spun for again, although it might come in time to who spins. So a
// few spins in a row are tried now and then, which meet those that the peer tries;
// one that pays is the only sample that counts. As long as none does, they are tried
// half as often each time. All of it is counted in waits: who waits for nothing tries
// nothing.
//
// On a busy machine, where others take the processor from who spins, the budget is
// halved again and again, and what takes longer than is left of it is slept for. Who
// sleeps and is woken keeps a machine busy, too, so that this alone would never end: a
// try that pays ends it.
type budget struct {
	longest  time.Duration
	slow     time.Duration // a yield that takes longer is one
	expected atomic.Int64  // ns; the median of late, at most twice longest
	pressure atomic.Int32  // 0 to maxPressure
	calm     atomic.Int32  // samples without a slow yield since pressure last changed

	slept  atomic.Int32 // waits that did not spin, since a try
	rest   atomic.Int32 // how many there are between tries; 0 for minRest
	tries  atomic.Int32 // of those in a row, how many are left
	trying atomic.Bool  // the last spin was a try, and has not paid yet
}

// spin is how long to spin now; 0 when that is not worth it.
func (b *budget) spin() time.Duration {
	left := time.Duration(0)
	if p := b.pressure.Load(); p < maxPressure {
		left = b.longest >> p
	}
	// worth it where it comes, as far as we know, while we spin.
	worth := left > 0 && time.Duration(b.expected.Load()) <= left
	try := !worth && b.try()
	b.trying.Store(try)
	switch {
	case worth:
		return left
	case try:
		return b.longest
	}
	return 0
}

// try reports whether to spin although it seems not worth it.
func (b *budget) try() bool {
	if b.tries.Load() > 0 {
		b.tries.Add(-1)
		return true
	}
	rest := max(b.rest.Load(), minRest)
	if b.slept.Add(1) < rest {
		return false
	}
	b.slept.Store(0)
	b.tries.Store(triesInRow - 1)
	b.rest.Store(min(2*rest, maxRest)) // unless it pays
	return true
}

// observe tells how long it took this time, spinning or not.
func (b *budget) observe(d time.Duration) {
	d = min(max(d, 0), 2*b.longest) // so that one long transfer is soon forgotten
	if d <= b.longest && b.trying.CompareAndSwap(true, false) {
		b.expected.Store(int64(d))
		b.pressure.Store(0)
		b.rest.Store(0)
		b.tries.Store(0)
		return
	}
	// A step toward the sample, however far that is: a few that take very long, as the
	// processor was somebody else's, are no reason to sleep.
	old := time.Duration(b.expected.Load())
	step := max(old, b.longest/stepParts) / stepParts
	b.expected.Store(int64(min(max(d, old-step), old+step)))
	if p := b.pressure.Load(); p > 0 && b.calm.Add(1) >= calmWaits {
		b.calm.Store(0)
		b.pressure.CompareAndSwap(p, p-1)
	}
}

// pressed reports whether others had something to compute of late.
func (b *budget) pressed() bool { return b.pressure.Load() > 0 }

// yielded tells how long a yield took while spinning.
func (b *budget) yielded(d time.Duration) {
	if d <= b.slow {
		return
	}
	b.calm.Store(0)
	if p := b.pressure.Load(); p < maxPressure {
		b.pressure.CompareAndSwap(p, p+1)
	}
}
