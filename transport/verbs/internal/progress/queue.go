package progress

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Mode says who polls when. A queue that calls for its events (verbs.CallbackCQ) is always
// in ModeEvent: no goroutine has to be woken there, and spinning takes the processor from
// the device.
type Mode uint8

const (
	// ModeAdaptive spins for a bounded time without a completion, then sleeps.
	ModeAdaptive Mode = iota
	// ModeBusy spins always: the resident, or in its place a waiter. It takes a
	// processor for each queue.
	ModeBusy
	// ModeEvent never spins: the resident handles everything, or the goroutine of the
	// device that calls.
	ModeEvent
)

func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

var modes = [...]string{"adaptive", "busy", "event"}

// ParseMode reads what String writes.
func ParseMode(s string) (Mode, error) {
	for i, name := range modes {
		if s == name {
			return Mode(i), nil
		}
	}
	return 0, fmt.Errorf("unknown poll mode %q: adaptive, busy or event", s)
}

// Config configures a Queue.
type Config struct {
	// CQ is polled, armed and waited for by nobody else. The caller closes it
	// after Stop.
	CQ verbs.CQ
	// Handle is called with each batch of completions and when it came, in order,
	// never by two goroutines at a time, with the baton held and no lock of this
	// package. The slice is lent for the call. It must not block, nor call Stop or
	// Wait.
	Handle func(wcs []verbs.WC, now time.Time)
	// Failed is called once, when polling, arming or waiting has failed and the
	// queue is of no use any more: by the goroutine that found it, without the
	// baton and without locks. It must not call Stop or Wait. It may be nil.
	Failed func(error)
	Mode   Mode
	// Batch is the most completions that Handle gets; 0 means DefaultBatch.
	Batch int
	// Spinners is shared by the queues of a process; nil means one of its own.
	Spinners *Spinners

	longest time.Duration // spinFor, but in tests
}

// Queue polls one completion queue, from Start to Stop.
type Queue struct {
	cq       verbs.CQ
	handle   func([]verbs.WC, time.Time)
	failed   func(error)
	mode     Mode
	spinners *Spinners
	longest  time.Duration // that a goroutine spins without a completion
	wcs      []verbs.WC    // of the baton's holder

	ended   chan struct{} // closed when the resident has ended
	handed  chan struct{} // closed when the stopper has the baton, or it is gone
	called  chan struct{} // ModeBusy: wakes the resident; holds one call
	stopped atomic.Bool   // nobody polls any more, but for the stopper
	lingers atomic.Bool   // the resident polls and counts as spinning
	crowd   atomic.Int32  // length of baton.spinning: a hint without the lock

	mu sync.Mutex
	// All below are guarded by mu.
	baton   baton[*Waiter]
	sleep   context.Context // the resident waits in it
	wake    context.CancelFunc
	err     error // why the queue failed
	closing bool  // Stop was called

	stats stats
}

// Start takes over the queue's completions: the resident goroutine, which Stop
// ends, polls it and arms it.
func Start(c Config) *Queue {
	if c.Batch <= 0 {
		c.Batch = DefaultBatch
	}
	if c.Spinners == nil {
		c.Spinners = NewSpinners(0)
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if c.longest == 0 {
		c.longest = spinFor
	}
	q := &Queue{
		cq: c.CQ, handle: c.Handle, failed: c.Failed, mode: c.Mode, spinners: c.Spinners, longest: c.longest, wcs: make([]verbs.WC, c.Batch),
		ended: make(chan struct{}), handed: make(chan struct{}), called: make(chan struct{}, 1),
	}
	if e, ok := c.CQ.(verbs.CallbackCQ); ok {
		q.mode = ModeEvent
		e.OnEvent(q.event)
	}
	if q.mode == ModeBusy {
		q.longest = forever
	}
	q.sleep, q.wake = context.WithCancel(context.Background())
	q.baton = baton[*Waiter]{holder: resident}
	go q.reside()
	return q
}

// reside is the resident goroutine. It begins with the baton.
func (q *Queue) reside() {
	defer close(q.ended)
	for holds := true; ; {
		if holds {
			q.residentTurn()
		}
		q.mu.Lock()
		ctx, end := q.sleep, q.baton.stop
		q.mu.Unlock()
		if end {
			return
		}
		if q.mode == ModeBusy {
			select {
			case <-q.called:
			case <-ctx.Done():
			}
		} else if err := q.cq.Wait(ctx); err != nil && ctx.Err() == nil {
			q.fail(fmt.Errorf("waiting for completions: %w", err), false)
			return
		}
		q.mu.Lock()
		q.stats.wakeups.Add(1)
		if holds = q.baton.event(); !holds {
			q.stats.idleWakeups.Add(1)
		}
		if ctx.Err() != nil && !q.baton.stop {
			q.sleep, q.wake = context.WithCancel(context.Background())
		}
		q.mu.Unlock()
	}
}

// residentTurn is a turn of the resident with the baton.
func (q *Queue) residentTurn() {
	s := spin{ctx: context.Background()}
	if q.mode == ModeBusy {
		s.limit = forever
	} else if q.mode == ModeAdaptive && q.spinners.enter() {
		s.limit = q.longest
		q.lingers.Store(true)
		defer func() {
			q.lingers.Store(false)
			q.spinners.leave()
		}()
	}
	q.poll(nil, s)
}

// eventTurn is a turn with the baton in place of the resident.
func (q *Queue) eventTurn() { q.poll(nil, spin{ctx: context.Background()}) }

// event is called by the device for an event. It is a wake-up of the resident without
// the resident.
func (q *Queue) event() {
	q.mu.Lock()
	q.stats.wakeups.Add(1)
	holds := q.baton.event()
	if !holds {
		q.stats.idleWakeups.Add(1)
	}
	q.mu.Unlock()
	if holds {
		q.eventTurn()
	}
}

// Look handles what has come, and reports whether it could: else another goroutine does,
// or the queue has ended.
func (q *Queue) Look() bool {
	q.mu.Lock()
	holds := q.baton.take()
	q.mu.Unlock()
	if holds {
		q.eventTurn()
	}
	return holds
}

// poll is one turn with the baton, from having it until it is given up: w's, or with
// nil the resident's. s bounds it.
func (q *Queue) poll(w *Waiter, s spin) {
	t := turn{resident: w == nil, busy: q.mode == ModeBusy}
	for {
		n, err := q.take()
		if err != nil {
			q.fail(err, true)
			return
		}
		leaves := t.leaving || q.stopped.Load() || w != nil && w.done() || w == nil && q.crowd.Load() > 0
		if s.goesOn(n > 0) && !leaves {
			continue
		}
		switch q.give(&t, n > 0) {
		case stepPoll:
		case stepArm:
			q.stats.arms.Add(1)
			if err := q.cq.Arm(false); err != nil {
				q.fail(fmt.Errorf("arming the completion queue: %w", err), true)
				return
			}
		default:
			return
		}
	}
}

// take polls once and handles what came. The caller holds the baton.
func (q *Queue) take() (int, error) {
	q.stats.polls.Add(1)
	n, err := q.cq.Poll(q.wcs)
	if n > 0 {
		q.stats.batches.Add(1)
		q.stats.completions.Add(uint64(n))
		q.handle(q.wcs[:n], time.Now())
	}
	if err != nil {
		return n, fmt.Errorf("polling the completion queue: %w", err)
	}
	return n, nil
}

// give asks the baton what to do, and tells whoever gets it.
func (q *Queue) give(t *turn, found bool) step {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.baton.give(t, found)
	switch s {
	case stepHanded:
		q.crowd.Store(int32(len(q.baton.spinning)))
		q.stats.handovers.Add(1)
		q.baton.waiter.flags.Or(flagHanded)
	case stepCalled:
		q.stats.calls.Add(1)
		q.callLocked()
	case stepStopped:
		close(q.handed)
	}
	return s
}

// callLocked wakes the resident.
func (q *Queue) callLocked() {
	if q.mode != ModeBusy {
		q.wake()
		return
	}
	select {
	case q.called <- struct{}{}:
	default: // it is being woken
	}
}

// fail ends the queue. holds says whether the caller holds the baton; if not it
// is the resident, whose wait has failed.
func (q *Queue) fail(err error, holds bool) {
	q.mu.Lock()
	first := q.err == nil && !q.closing
	if q.err == nil {
		q.err = err
	}
	q.endLocked(holds)
	q.mu.Unlock()
	if first {
		q.failed(err)
	}
}

// endLocked takes the baton for ever: it is the caller's, free, or comes when
// its holder gives it up.
func (q *Queue) endLocked(holds bool) {
	if holds {
		q.baton.holder = nobody
	}
	if q.baton.end() {
		close(q.handed)
	}
	q.stopped.Store(true)
	q.wake()
}

// Stop ends the queue: it waits until nobody polls, handles what is left in the
// queue and returns when the resident has ended. Waiters stay until they are Done
// or their context ends. Completions that come later stay in the queue. To be
// called once, not from Handle or Failed. Its error is why the queue had failed.
func (q *Queue) Stop() error {
	q.mu.Lock()
	q.closing = true
	q.endLocked(false)
	q.mu.Unlock()
	<-q.handed
	<-q.ended
	for {
		q.mu.Lock()
		err := q.err
		q.mu.Unlock()
		if err != nil {
			return err
		}
		n, err := q.take()
		if err != nil || n == 0 {
			return err
		}
	}
}
