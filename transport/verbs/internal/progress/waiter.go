package progress

import (
	"context"
	"sync/atomic"
)

// Waiter is one goroutine's wait for a completion that Handle recognises. Make it with
// NewWaiter, post the work request, then Wait.
type Waiter struct {
	q     *Queue
	flags atomic.Uint32
	wake  chan struct{} // capacity 1; Done sends to it once, if the waiter is parked

	ready func() // the function given to Watch
}

const (
	flagDone    = 1 << iota // Done was called
	flagHanded              // the waiter was given the token
	flagParked              // the waiter sleeps, or is about to
	flagWatched             // Done is to call ready
)

// NewWaiter returns a waiter of this queue.
func (q *Queue) NewWaiter() *Waiter { return &Waiter{q: q, wake: make(chan struct{}, 1)} }

// Done ends the wait, whether Wait has been called or not. It does not block, and may be
// called from anywhere, normally from Handle. Calls after the first do nothing.
func (w *Waiter) Done() {
	old := w.flags.Or(flagDone)
	switch {
	case old&flagDone != 0:
	case old&flagWatched != 0:
		w.callReady()
	case old&flagParked != 0:
		w.wake <- struct{}{} // does not block: it is the only send
	}
}

// Watch arranges that ready is called once when w is done: by the goroutine that calls
// Done, or at once. Then no goroutine has to sleep in Wait. Where a waiter would poll,
// Watch returns false and ready is not called; the caller then calls Wait soon: unless
// polls do the work of the device, whose goroutine does it as fast for many receives that
// only call back. A wait that a context may end needs Wait.
func (w *Waiter) Watch(ready func()) bool {
	q := w.q
	if q.driven == nil && q.spins() && q.spinners.free() {
		return false
	}
	q.stats.parks.Add(1)
	w.ready = ready
	if w.flags.Or(flagWatched)&flagDone != 0 {
		w.callReady()
	}
	return true
}

// callReady calls ready, which may reset w for another wait.
func (w *Waiter) callReady() {
	ready := w.ready
	w.ready = nil
	ready()
}

// Reset prepares w for another wait, after Wait returned nil and every call of Done for
// that wait has returned.
func (w *Waiter) Reset() {
	if w.flags.Load()&flagParked != 0 {
		select {
		case <-w.wake:
		default:
		}
	}
	w.flags.Store(0)
}

func (w *Waiter) done() bool { return w.flags.Load()&flagDone != 0 }

// Wait returns nil when w is done, and ctx's error when ctx ends before. Meanwhile it
// polls the queue for all waiters, or sleeps. On a queue that has ended it sleeps: the
// goroutine that ended the queue calls Done for the remaining waiters.
func (w *Waiter) Wait(ctx context.Context) error {
	if w.done() {
		return nil
	}
	if w.q.spins() {
		w.spin(ctx)
	}
	if !w.done() && ctx.Err() == nil {
		w.park(ctx)
	}
	if w.done() {
		return nil
	}
	return ctx.Err()
}

// spins reports whether waiters may spin.
func (q *Queue) spins() bool { return q.mode != ModeEvent && !q.stopped.Load() }

// spin competes for the token, and polls when it has it.
func (w *Waiter) spin(ctx context.Context) {
	q := w.q
	if !q.spinners.enter() {
		if !q.pollerSpins.Load() {
			return
		}
		q.spinners.replace() // the poller hands the token over at once and stops spinning
	}
	defer q.spinners.leave()
	q.mu.Lock()
	holds := q.token.enter(w)
	q.contenders.Store(int32(len(q.token.spinning)))
	q.mu.Unlock()
	if holds || w.awaitToken(ctx) {
		q.poll(w, spin{ctx: ctx, limit: q.maxSpin})
	}
}

// awaitToken spins until w has the token (true) or is done, for at most spinFor, since in
// ModeBusy the holder may never release the token.
func (w *Waiter) awaitToken(ctx context.Context) bool {
	s := spin{ctx: ctx, limit: spinFor}
	for {
		switch f := w.flags.Load(); {
		case f&flagHanded != 0:
			w.flags.And(^uint32(flagHanded))
			return true
		case f&flagDone != 0, w.q.stopped.Load(), !s.goesOn(false):
			return w.quit()
		}
	}
}

// quit stops competing. It reports whether w has been given the token meanwhile.
func (w *Waiter) quit() bool {
	q := w.q
	q.mu.Lock()
	defer q.mu.Unlock()
	holds := q.token.quit(w)
	q.contenders.Store(int32(len(q.token.spinning)))
	w.flags.And(^uint32(flagHanded))
	return holds
}

// park sleeps until w is done or ctx ends.
func (w *Waiter) park(ctx context.Context) {
	if w.flags.Or(flagParked)&flagDone != 0 {
		return
	}
	w.q.stats.parks.Add(1)
	for !w.done() { // only Done ends the wait, whatever woke the goroutine
		select {
		case <-w.wake:
		case <-ctx.Done():
			return
		}
	}
}
