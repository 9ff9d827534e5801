package poll

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"
)

// Waiter is one goroutine's wait for a completion that Handle knows to be its
// own. Make it with NewWaiter, post what will complete, then Wait.
type Waiter struct {
	q     *Queue
	flags atomic.Uint32
	wake  chan struct{} // holds one; sent to once, by Done, when the waiter is parked

	// Of Watch.
	ready  func()
	began  time.Time
	budget time.Duration // for the spin that follows a Watch that was refused; 0 for none

	came time.Time // when the batch came that it took itself and is done by; else zero
}

const (
	flagDone    = 1 << iota // Done was called
	flagHanded              // the baton was given to it
	flagParked              // it sleeps, or is about to
	flagWatched             // ready is to be called
)

// NewWaiter returns a waiter of this queue.
func (q *Queue) NewWaiter() *Waiter { return &Waiter{q: q, wake: make(chan struct{}, 1)} }

// Done says that what w waits for has happened, whether Wait has been called or
// not. It does not block and may be called from anywhere, by Handle above all;
// calls after the first do nothing.
func (w *Waiter) Done() {
	old := w.flags.Or(flagDone)
	switch {
	case old&flagDone != 0:
	case old&flagWatched != 0:
		w.q.parked.Store(true)
		w.tell()
	case old&flagParked != 0:
		w.q.parked.Store(true)
		w.wake <- struct{}{} // never blocks: it is sent once
	}
}

// Watch has ready called once, when w is done, by whoever calls Done, or at once: then
// nobody has to sleep in Wait, which returns nil from then on. It returns false, and
// ready is not called, where a waiter would poll: then Wait is to be called soon. For a
// wait that may end before, by a context, there is only Wait.
func (w *Waiter) Watch(ready func()) bool {
	q := w.q
	if q.mode != ModeEvent && !q.stopped.Load() {
		if w.budget = q.budgetOf(w); w.budget > 0 {
			return false
		}
		w.began = time.Now()
	}
	q.stats.parks.Add(1)
	w.ready = ready
	if w.flags.Or(flagWatched)&flagDone != 0 {
		w.tell()
	}
	return true
}

// tell calls ready. When it is called the waiter may be another wait's.
func (w *Waiter) tell() {
	q, ready := w.q, w.ready
	if !w.began.IsZero() {
		q.waits.observe(time.Since(w.began))
	}
	w.ready, w.began = nil, time.Time{}
	ready()
}

// Reset makes w new after a Wait that returned nil, when every call of Done for that
// one has returned.
func (w *Waiter) Reset() {
	if w.flags.Load()&flagParked != 0 {
		select {
		case <-w.wake:
		default:
		}
	}
	w.budget = 0
	w.flags.Store(0)
}

func (w *Waiter) done() bool { return w.flags.Load()&flagDone != 0 }

// Wait returns nil when w is done, and ctx's error when ctx ends before. While it
// waits it polls the queue for everybody, or sleeps. On a queue that has ended it
// sleeps: who ends the queue calls Done for those that are left.
func (w *Waiter) Wait(ctx context.Context) error {
	if w.done() {
		return nil
	}
	if q := w.q; q.mode != ModeEvent && !q.stopped.Load() {
		began := time.Now()
		w.spin(ctx)
		if !w.done() && ctx.Err() == nil {
			w.park(ctx)
		}
		if w.done() {
			if w.came.IsZero() { // in a batch that somebody else took
				w.came = time.Now()
			}
			q.waits.observe(w.came.Sub(began))
			w.came = time.Time{}
		}
	} else {
		w.park(ctx)
	}
	if w.done() {
		return nil
	}
	return ctx.Err()
}

// spin competes for the baton and polls when it has it, within the budget.
func (w *Waiter) spin(ctx context.Context) {
	q := w.q
	budget := w.budget
	if w.budget = 0; budget == 0 {
		budget = q.budgetOf(w)
	}
	if budget == 0 {
		return
	}
	if !q.spinners.enter() {
		// The resident, when it spins, gives way to us at once.
		if !q.lingers.Load() {
			return
		}
		q.spinners.replace()
	}
	defer q.spinners.leave()
	q.mu.Lock()
	holds := q.baton.enter(w)
	q.crowd.Store(int32(len(q.baton.spinning)))
	q.mu.Unlock()
	if !holds && !w.awaitBaton(ctx, budget) {
		return
	}
	q.poll(w, ctx, budget)
}

// awaitBaton spins until w has the baton (true), is done, its context ends or the
// budget is over.
func (w *Waiter) awaitBaton(ctx context.Context, budget time.Duration) bool {
	q := w.q
	began := time.Now()
	yielded := began
	for n := 1; ; n++ {
		switch f := w.flags.Load(); {
		case f&flagHanded != 0:
			w.flags.And(^uint32(flagHanded))
			return true
		case f&flagDone != 0, n >= maxEmptyPolls, q.stopped.Load():
			return w.quit()
		}
		if n%checkEvery == 0 {
			now := time.Now()
			if q.spinners.alone() || now.Sub(yielded) > yieldAfter {
				yielded = q.yield(&q.waits)
			}
			if ctx.Err() != nil || now.Sub(began) > budget {
				return w.quit()
			}
		}
	}
}

// quit gives up competing; true when w has the baton by now.
func (w *Waiter) quit() bool {
	q := w.q
	q.mu.Lock()
	defer q.mu.Unlock()
	holds := q.baton.quit(w)
	q.crowd.Store(int32(len(q.baton.spinning)))
	w.flags.And(^uint32(flagHanded))
	return holds
}

// park sleeps until w is done or ctx ends.
func (w *Waiter) park(ctx context.Context) {
	if w.flags.Or(flagParked)&flagDone != 0 {
		return
	}
	w.q.stats.parks.Add(1)
	for !w.done() { // whatever has woken it
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}

// budgetOf is how long a waiter, or with nil the resident, may spin without a
// completion.
func (q *Queue) budgetOf(w *Waiter) time.Duration {
	switch {
	case q.mode == ModeEvent:
		return 0
	case q.mode == ModeBusy:
		return 1<<63 - 1
	case w == nil:
		return q.gaps.spin()
	}
	return q.waits.spin()
}

// spin decides how long one turn with the baton polls.
type spin struct {
	q      *Queue
	w      *Waiter // nil: the resident
	ctx    context.Context
	budget time.Duration
	empty  int // polls without a completion
	since  time.Time
	counts bool // among the spinners
	still  bool // it does not spin
	fed    bool // a batch came since others were let run, and they may wait for this processor
	polls  uint64
}

// restart begins again: a waiter with the budget of its wait, the resident with a new
// one.
func (s *spin) restart() {
	s.empty = 0
	if s.still {
		return
	}
	s.since = time.Now()
	if s.w != nil {
		return
	}
	s.budget = s.q.budgetOf(nil)
	if !s.counts && s.q.mode == ModeAdaptive && s.budget > 0 {
		if s.counts = s.q.spinners.enter(); !s.counts {
			s.budget = 0
		}
		s.q.lingers.Store(s.counts)
	}
}

func (s *spin) end() {
	if s.counts {
		s.q.lingers.Store(false)
		s.q.spinners.leave()
		s.counts = false
	}
	s.q.stats.polls.Add(s.polls)
}

// budgetOf is what learns from this turn.
func (s *spin) budgetOf() *budget {
	if s.w == nil {
		return &s.q.gaps
	}
	return &s.q.waits
}

// over reports whether the holder wants to give the baton up, after a poll that
// brought n completions.
func (s *spin) over(n int) bool {
	q := s.q
	s.polls++
	switch {
	case s.w != nil && s.w.done():
		if n > 0 {
			s.w.came = q.lastBatch
		}
		return true
	case q.stopped.Load(), s.w == nil && q.crowd.Load() > 0:
		return true
	case n > 0:
		s.empty = 0
		if q.roused.Load() || q.mode == ModeAdaptive && s.budgetOf().pressed() {
			q.roused.Store(false)
			s.fed = true
		}
		q.lastBatch = time.Now()
		s.since = q.lastBatch
		if q.parked.Load() {
			q.parked.Store(false)
			if s.budget > 0 {
				// Who was woken waits behind us on this processor. Without a
				// budget it runs as soon as we sleep, which is now.
				runtime.Gosched()
			}
		}
		return s.w != nil && s.polls%checkEvery == 0 && s.ctx.Err() != nil
	}
	if s.empty++; s.budget == 0 {
		return true
	}
	if s.empty%checkEvery != 0 {
		return false
	}
	q.stats.polls.Add(s.polls)
	s.polls = 0
	now := time.Now()
	b := s.budgetOf()
	if s.fed || q.spinners.alone() || now.Sub(q.yielded) > yieldAfter {
		q.yielded, s.fed = q.yield(b), false
	}
	spun := now.Sub(s.since)
	switch {
	case s.w != nil && s.ctx.Err() != nil:
		return true
	case q.mode != ModeBusy && (s.empty >= maxEmptyPolls || spun > s.budget):
		return true
	case spun > q.late(b):
		q.others()
	}
	return false
}

// late is from when on it takes longer than it took of late: perhaps since who is waited
// for has no processor but this one.
func (q *Queue) late(b *budget) time.Duration {
	if q.mode == ModeBusy {
		return busyLate
	}
	return max(lateTimes*time.Duration(b.expected.Load()), leastLate)
}
