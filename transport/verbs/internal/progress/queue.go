package progress

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// Mode says which goroutines poll, and when. A queue that calls a function for its events
// (verbs.CallbackCQ) is always in ModeEvent, unless its polls do the work of the device
// (verbs.DrivenCQ): otherwise spinning would take the processor from the software device.
type Mode uint8

const (
	// ModeAdaptive spins for a bounded time without a completion, then sleeps.
	ModeAdaptive Mode = iota
	// ModeBusy always spins: the poller, or a waiter in its place. It takes a processor
	// for each queue. A queue whose polls do the work of the device (verbs.DrivenCQ) has
	// only its waiters spin, for longer than in ModeAdaptive: its peer is a process of
	// this host, or may be one, and needs a processor, too.
	ModeBusy
	// ModeEvent never spins: the poller handles everything, or the calling goroutine of
	// the device.
	ModeEvent
)

func (m Mode) String() string {
	if int(m) < len(modes) {
		return modes[m]
	}
	return fmt.Sprintf("mode %d", uint8(m))
}

var modes = [...]string{"adaptive", "busy", "event"}

// spins returns how long a goroutine spins without a completion, on a queue whose polls do the work of
// the device (driven) or on another one.
func (m Mode) spins(driven bool) time.Duration {
	switch {
	case m == ModeBusy && driven:
		return busySpin
	case m == ModeBusy:
		return forever
	case driven:
		return drivenSpin
	}
	return spinFor
}

// ParseMode is the reverse of String.
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
	// CQ is polled, armed and waited for by this queue only. The caller closes it after
	// Stop.
	CQ verbs.CQ
	// Handle is called with each batch of completions and the time of the poll, in
	// order, by one goroutine at a time, with the token held and no lock of this
	// package. The slice is valid during the call only. Handle must not block, nor call
	// Stop or Wait.
	Handle func(wcs []verbs.WC, now time.Time)
	// Failed is called once when polling, arming or waiting has failed, after which the
	// queue cannot be used. The goroutine that got the error calls it, without the token
	// and without locks. It must not call Stop or Wait. It may be nil.
	Failed func(error)
	Mode   Mode
	// Batch is the largest number of completions in a call of Handle; 0 means
	// DefaultBatch.
	Batch int
	// Spinners is shared by the queues of a process; nil means one of its own.
	Spinners *Spinners

	maxSpin time.Duration // 0 for that of the mode; tests set it
}

// Queue polls one completion queue, from Start to Stop.
type Queue struct {
	cq       verbs.CQ
	driven   verbs.DrivenCQ // cq, or nil
	handle   func([]verbs.WC, time.Time)
	failed   func(error)
	mode     Mode
	spinners *Spinners
	maxSpin  time.Duration // how long a goroutine spins without a completion
	wcs      []verbs.WC    // of the token's holder

	ended       chan struct{} // closed when the poller has ended
	stopperTurn chan struct{} // closed when Stop may poll, or the queue has failed
	pollerCall  chan struct{} // ModeBusy: wakes the poller; holds one call
	stopped     atomic.Bool   // only Stop polls any more
	pollerSpins atomic.Bool   // the poller polls and counts as spinning
	contenders  atomic.Int32  // length of token.spinning, as a hint without the lock

	mu sync.Mutex
	// mu guards all fields below.
	token   token[*Waiter]
	sleep   context.Context // of the poller's wait; wake cancels it
	wake    context.CancelFunc
	err     error // why the queue failed
	closing bool  // Stop was called

	stats stats
}

// Start takes over the completions of a queue. It starts the poller goroutine, which
// Stop ends.
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
	q := &Queue{
		cq: c.CQ, handle: c.Handle, failed: c.Failed, mode: c.Mode, spinners: c.Spinners, maxSpin: c.maxSpin, wcs: make([]verbs.WC, c.Batch),
		ended: make(chan struct{}), stopperTurn: make(chan struct{}), pollerCall: make(chan struct{}, 1),
	}
	if e, ok := c.CQ.(verbs.CallbackCQ); ok {
		e.OnEvent(q.event)
		if q.driven, ok = c.CQ.(verbs.DrivenCQ); !ok {
			q.mode = ModeEvent
		}
	}
	if q.maxSpin == 0 {
		q.maxSpin = q.mode.spins(q.driven != nil)
	}
	if q.driven != nil && q.mode == ModeBusy {
		q.mode = ModeAdaptive // with a longer time
	}
	q.sleep, q.wake = context.WithCancel(context.Background())
	q.token = token[*Waiter]{holder: poller}
	go q.runPoller()
	return q
}

// runPoller is the poller goroutine. It begins with the token.
func (q *Queue) runPoller() {
	defer close(q.ended)
	for holds := true; ; {
		if holds {
			q.pollerTurn()
		}
		q.mu.Lock()
		ctx, end := q.sleep, q.token.stop
		q.mu.Unlock()
		if end {
			return
		}
		if q.mode == ModeBusy {
			select {
			case <-q.pollerCall:
			case <-ctx.Done():
			}
		} else if err := q.cq.Wait(ctx); err != nil && ctx.Err() == nil {
			q.fail(fmt.Errorf("waiting for completions: %w", err), false)
			return
		}
		q.mu.Lock()
		q.stats.wakeups.Add(1)
		if holds = q.token.event(); !holds {
			q.stats.idleWakeups.Add(1)
		}
		if ctx.Err() != nil && !q.token.stop {
			q.sleep, q.wake = context.WithCancel(context.Background())
		}
		q.mu.Unlock()
	}
}

// pollerTurn is one turn of the poller with the token.
func (q *Queue) pollerTurn() {
	s := spin{ctx: context.Background()}
	if q.mode == ModeBusy {
		s.limit = forever
	} else if q.mode == ModeAdaptive && q.driven == nil && q.spinners.enter() {
		s.limit = q.maxSpin
		q.pollerSpins.Store(true)
		defer func() {
			q.pollerSpins.Store(false)
			q.spinners.leave()
		}()
	}
	q.poll(nil, s)
}

// eventTurn is one turn with the token in place of the poller.
func (q *Queue) eventTurn() { q.poll(nil, spin{ctx: context.Background()}) }

// event is called by the device for an event, in place of waking the poller.
func (q *Queue) event() {
	q.mu.Lock()
	q.stats.wakeups.Add(1)
	holds := q.token.event()
	if !holds {
		q.stats.idleWakeups.Add(1)
	}
	q.mu.Unlock()
	if holds {
		q.eventTurn()
	}
}

// PollOnce handles the completions that have come. It returns false when another
// goroutine is polling or the queue has ended.
func (q *Queue) PollOnce() bool {
	q.mu.Lock()
	holds := q.token.tryTake()
	q.mu.Unlock()
	if holds {
		q.eventTurn()
	}
	return holds
}

// poll is one turn with the token, until it is released: of w, or with nil of the
// poller. s bounds it.
func (q *Queue) poll(w *Waiter, s spin) {
	t := turn{poller: w == nil, busy: q.mode == ModeBusy}
	if q.driven != nil && w != nil {
		q.driven.Disarm()
	}
	for {
		n, err := q.pollBatch()
		if err != nil {
			q.fail(err, true)
			return
		}
		leaves := t.leaving || q.stopped.Load() || w != nil && w.done() || w == nil && q.contenders.Load() > 0
		if n > 0 && w != nil && !leaves {
			runtime.Gosched() // what came was for others
		}
		if s.goesOn(n > 0) && !leaves {
			continue
		}
		switch q.release(&t, n > 0) {
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

// pollBatch polls once and handles what came. The caller holds the token.
func (q *Queue) pollBatch() (int, error) {
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

// release advances the release of the token, and notifies its next holder.
func (q *Queue) release(t *turn, found bool) step {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.token.release(t, found)
	switch s {
	case stepHandOver:
		q.contenders.Store(int32(len(q.token.spinning)))
		q.stats.handovers.Add(1)
		q.token.waiter.flags.Or(flagHanded)
	case stepWakePoller:
		q.stats.calls.Add(1)
		q.wakePollerLocked()
	case stepStopped:
		close(q.stopperTurn)
	}
	return s
}

// wakePollerLocked wakes the poller.
func (q *Queue) wakePollerLocked() {
	if q.mode != ModeBusy {
		q.wake()
		return
	}
	select {
	case q.pollerCall <- struct{}{}:
	default: // a call is pending already
	}
}

// fail ends the queue. holds says whether the caller holds the token; otherwise it is
// the poller, whose wait has failed.
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

// endLocked takes the token for ever: from the caller, or at once if it is free, or when
// its holder releases it.
func (q *Queue) endLocked(holds bool) {
	if holds {
		q.token.holder = noHolder
	}
	if q.token.end() {
		close(q.stopperTurn)
	}
	q.stopped.Store(true)
	q.wake()
}

// Stop ends the queue. It waits until no other goroutine polls and the poller has ended,
// and handles what is left in the queue. Completions that come later stay in the queue.
// Waiters wait until they are Done or their context ends. Call Stop once, not from Handle
// or Failed. Its error is the one that the queue has failed with.
func (q *Queue) Stop() error {
	q.mu.Lock()
	q.closing = true
	q.endLocked(false)
	q.mu.Unlock()
	<-q.stopperTurn
	<-q.ended
	for {
		q.mu.Lock()
		err := q.err
		q.mu.Unlock()
		if err != nil {
			return err
		}
		n, err := q.pollBatch()
		if err != nil || n == 0 {
			return err
		}
	}
}
