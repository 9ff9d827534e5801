package progress

import (
	"context"
	"sync/atomic"
)

// Waiter is one goroutine's wait for a completion that Handle knows to be its
// own. Make it with NewWaiter, post what will complete, then Wait.
type Waiter struct {
	q     *Queue
	flags atomic.Uint32
	wake  chan struct{} // holds one; sent to once, by Done, when the waiter is parked

	ready func() // of Watch
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
		w.tell()
	case old&flagParked != 0:
		w.wake <- struct{}{} // never blocks: it is sent once
	}
}

// Watch has ready called once, when w is done, by the goroutine that calls Done, or at
// once: then nobody has to sleep in Wait, which returns nil from then on. It returns
// false, and ready is not called, where a waiter would poll: then Wait is to be called
// soon. For a wait that may end before, by a context, there is only Wait.
func (w *Waiter) Watch(ready func()) bool {
	q := w.q
	if q.spins() && q.spinners.free() {
		return false
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
	ready := w.ready
	w.ready = nil
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
	w.flags.Store(0)
}

func (w *Waiter) done() bool { return w.flags.Load()&flagDone != 0 }

// Wait returns nil when w is done, and ctx's error when ctx ends before. While it
// waits it polls the queue for everybody, or sleeps. On a queue that has ended it
// sleeps: the goroutine that ends the queue calls Done for those that are left.
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

// spin competes for the baton, and polls when it has it.
func (w *Waiter) spin(ctx context.Context) {
	q := w.q
	if !q.spinners.enter() {
		if !q.lingers.Load() {
			return
		}
		q.spinners.replace() // the resident gives way at once
	}
	defer q.spinners.leave()
	q.mu.Lock()
	holds := q.baton.enter(w)
	q.crowd.Store(int32(len(q.baton.spinning)))
	q.mu.Unlock()
	if holds || w.awaitBaton(ctx) {
		q.poll(w, spin{ctx: ctx, limit: q.longest})
	}
}

// awaitBaton spins until w has the baton (true) or is done, for spinFor at most: in
// ModeBusy the holder may never give it up.
func (w *Waiter) awaitBaton(ctx context.Context) bool {
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
