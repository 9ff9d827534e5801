package grpctransport

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
)

// loans counts the loans of a server that have not ended, and finds those that gRPC has dropped.
// Only the garbage collector shows that a buffer was dropped. A server that has little to do collects
// once in two minutes, and meanwhile the charge of the loan would keep other responses waiting. So
// while a loan is open longer than any that gRPC writes at full speed, loans has the garbage collected.
type loans struct {
	open    [2]atomic.Int64 // loans that have not ended, by slot: old ones and new ones
	slot    atomic.Uint32   // of new loans
	dropped atomic.Uint64   // loans that gRPC has dropped
	hurry   atomic.Bool     // soon was called since the last collection
	timer   *idle.Timer     // runs while a loan is open

	collect func() // runtime.GC

	// All below are used by sweep only.
	pause    time.Duration // after the next collection, if that finds nothing
	next     time.Time     // when that may be
	earliest time.Time     // and when at the earliest, although a dropped one was found
	found    uint64        // dropped, at the last sweep
}

func newLoans() *loans {
	l := &loans{collect: runtime.GC, pause: loanSweep}
	l.timer = idle.NewTimer(loanSweep, l.sweep)
	return l
}

// begin counts a loan. Its end, or its drop, must get the result.
func (l *loans) begin() (slot uint32) {
	if l == nil {
		return 0
	}
	slot = l.slot.Load()
	l.open[slot].Add(1)
	l.timer.Start()
	return slot
}

func (l *loans) end(slot uint32) {
	if l != nil {
		l.open[slot].Add(-1)
	}
}

// drop is end for a loan that gRPC has dropped.
func (l *loans) drop(slot uint32) {
	if l != nil {
		l.dropped.Add(1)
		l.open[slot].Add(-1)
	}
}

// soon lets the next sweep collect garbage, as if loans had been found to be dropped.
func (l *loans) soon() { l.hurry.Store(true) }

// sweep collects garbage if a loan is open that was open at the last sweep, too. The pause doubles
// while that finds nothing: then a client reads slowly. It is at least a multiple of the time that a
// collection takes, whatever clients do.
func (l *loans) sweep(time.Duration) (more bool) {
	now := l.slot.Load()
	old := 1 - now
	if n := l.dropped.Load(); n != l.found || l.hurry.Load() {
		l.found, l.pause, l.next = n, loanSweep, l.earliest
	}
	if l.open[old].Load() == 0 { // the next sweep finds those old that are open now
		l.slot.Store(old)
		if l.open[now].Load() > 0 {
			return true
		}
		l.pause, l.next = loanSweep, l.earliest
		return false
	}
	begin := time.Now()
	if begin.Before(l.next) {
		return true
	}
	l.hurry.Store(false)
	l.collect()
	end := time.Now()
	l.earliest, l.next = end.Add(collectShare*end.Sub(begin)), begin.Add(l.pause)
	if l.next.Before(l.earliest) {
		l.next = l.earliest
	}
	l.pause = min(2*l.pause, maxCollectPause)
	return true
}
