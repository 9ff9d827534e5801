package poll

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Mode says who polls when.
type Mode uint8

const (
	// ModeAdaptive spins for as long as it has paid lately, then sleeps. On a queue
	// that calls for its events (verbs.EventCaller) it is ModeEvent: nobody has to be
	// woken there, and who spins takes the processor from the device.
	ModeAdaptive Mode = iota
	// ModeBusy spins always: the resident, or in its place a waiter. It takes a
	// processor for each queue. Where fewer than two goroutines may spin (less
	// than four processors) a waiter that leaves does not start the resident,
	// which would take a processor from whoever the waiter works for; the queue is
	// armed, and the resident spins from the next completion on.
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
	// MaxSpin is the longest time that somebody spins in ModeAdaptive without a
	// completion; 0 means a multiple of what arming costs on this machine,
	// between 50 µs and 4 ms.
	MaxSpin time.Duration
	// Spinners is shared by the queues of a process; nil means one of its own.
	Spinners *Spinners

	others func() // letOthersRun, but in tests
}

// Queue polls one completion queue, from Start to Stop.
type Queue struct {
	cq       verbs.CQ
	handle   func([]verbs.WC, time.Time)
	failed   func(error)
	mode     Mode
	eager    bool // ModeBusy: the resident takes over when a waiter leaves
	spinners *Spinners
	others   func() // has the kernel run other processes on this processor
	waits    budget // how long a Wait takes
	gaps     budget // how long the resident finds nothing

	// Of who holds the baton.
	wcs       []verbs.WC
	lastBatch time.Time // when the last one came, or, if its holder went on, had been handled
	yielded   time.Time // when others were let run, in whoever's turn

	ended   chan struct{} // closed when the resident has ended
	handed  chan struct{} // closed when the stopper has the baton, or it is gone
	called  chan struct{} // eager: wakes the resident; holds one call
	stopped atomic.Bool   // nobody polls any more, but for the stopper
	parked  atomic.Bool   // a parked waiter was woken by the batch that is being handled
	roused  atomic.Bool   // Rouse was called
	lingers atomic.Bool   // the resident polls and counts as spinning
	crowd   atomic.Int32  // how many are in baton.spinning: a hint without the lock

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
// ends, polls it and arms it. It fails when the queue cannot be armed.
func Start(c Config) (*Queue, error) {
	if c.Batch <= 0 {
		c.Batch = DefaultBatch
	}
	if c.Spinners == nil {
		c.Spinners = NewSpinners(0)
	}
	if c.Failed == nil {
		c.Failed = func(error) {}
	}
	if c.others == nil {
		c.others = letOthersRun
	}
	q := &Queue{
		cq: c.CQ, handle: c.Handle, failed: c.Failed, mode: c.Mode, spinners: c.Spinners, wcs: make([]verbs.WC, c.Batch),
		ended: make(chan struct{}), handed: make(chan struct{}), called: make(chan struct{}, 1),
		others: c.others,
	}
	if e, ok := c.CQ.(verbs.EventCaller); ok && q.mode != ModeBusy {
		q.mode = ModeEvent
		e.OnEvent(q.event)
	}
	q.eager = c.Mode == ModeBusy && c.Spinners.limit.Load() >= 2
	slow := slowYield
	if q.mode != ModeEvent && !q.eager {
		if c.MaxSpin <= 0 {
			arming, err := measure(c.CQ)
			if err != nil {
				return nil, err
			}
			c.MaxSpin = min(max(arming*spinArms, minSpin), maxSpin)
			slow = max(arming*slowArms, slow)
		}
	}
	q.waits.longest, q.gaps.longest = c.MaxSpin, c.MaxSpin
	q.waits.slow, q.gaps.slow = slow, slow
	q.lastBatch = time.Now()
	q.sleep, q.wake = context.WithCancel(context.Background())
	q.baton = baton[*Waiter]{holder: resident}
	go q.reside()
	return q, nil
}

// reside is the resident goroutine. It begins with the baton.
func (q *Queue) reside() {
	defer close(q.ended)
	for holds := true; ; {
		if holds {
			q.poll(nil, nil, 0)
		}
		q.mu.Lock()
		ctx, end := q.sleep, q.baton.stop
		q.mu.Unlock()
		if end {
			return
		}
		if q.eager {
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
		q.tidy()
	}
}

// Rouse says that another goroutine was made ready by what Handle does, as Done says it of
// a waiter: who spins lets it run soon, where it may wait for this processor.
func (q *Queue) Rouse() {
	if !q.roused.Load() {
		q.roused.Store(true)
	}
}

// Look handles what has come, and reports whether it could: else somebody is at it, or the
// queue has ended.
func (q *Queue) Look() bool {
	q.mu.Lock()
	holds := q.baton.take()
	q.mu.Unlock()
	if holds {
		q.tidy()
	}
	return holds
}

// tidy is a turn in place of the resident: it handles what is there until the queue is
// empty, and arms.
func (q *Queue) tidy() { q.turn(turn{resident: true}, spin{q: q, still: true}) }

// measure is what arming the queue costs here.
func measure(cq verbs.CQ) (time.Duration, error) {
	least := maxSpin
	for range armTries {
		began := time.Now()
		if err := cq.Arm(false); err != nil {
			return 0, fmt.Errorf("arming the completion queue: %w", err)
		}
		least = min(least, time.Since(began))
	}
	return least, nil
}

// poll is one turn with the baton: w's, which waits in ctx and may spin for that
// budget, or with nil the resident's.
func (q *Queue) poll(w *Waiter, ctx context.Context, budget time.Duration) {
	s := spin{q: q, w: w, ctx: ctx, budget: budget}
	s.restart()
	q.turn(turn{resident: w == nil, busy: q.mode == ModeBusy, eager: q.eager}, s)
}

// turn polls until the baton is given up.
func (q *Queue) turn(t turn, s spin) {
	defer s.end()
	for {
		n, err := q.take()
		if err != nil {
			q.fail(err, true)
			return
		}
		if !t.leaving && !s.over(n) {
			continue
		}
		switch q.give(&t, n > 0) {
		case stepPoll:
			s.restart()
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
	n, err := q.cq.Poll(q.wcs)
	if n > 0 {
		q.stats.batches.Add(1)
		q.stats.completions.Add(uint64(n))
		now := time.Now()
		q.handle(q.wcs[:n], now) // first: the peer waits for what it posts
		if q.mode == ModeAdaptive {
			q.gaps.observe(now.Sub(q.lastBatch))
		}
		q.lastBatch = now
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
	if !q.eager {
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

// yield lets others run, tells b how long that took, and returns when it is over.
func (q *Queue) yield(b *budget) time.Time {
	q.stats.yields.Add(1)
	began := time.Now()
	runtime.Gosched()
	now := time.Now()
	b.yielded(now.Sub(began))
	return now
}
