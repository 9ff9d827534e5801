package progress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

func TestAWaiterGetsItsCompletionInEveryMode(t *testing.T) {
	eachQueue(t, func(t *testing.T, mode Mode, fake func(*fakeCQ) testCQ) {
		t.Run(mode.String(), func(t *testing.T) {
			cq := fake(newFakeCQ())
			var w *Waiter
			q := Start(Config{CQ: cq, Mode: mode, Handle: func(wcs []verbs.WC, _ time.Time) {
				for range wcs {
					w.Done()
				}
			}})
			w = q.NewWaiter()
			for i := range 1000 {
				go cq.complete(verbs.WRID(i))
				if err := w.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.Reset()
			}
			if err := q.Stop(); err != nil {
				t.Error(err)
			}
			if s := q.Stats(); s.Completions != 1000 {
				t.Errorf("%+v", s)
			}
		})
	})
}

// eachQueue plays f in every mode, on queues that call and on those that do not.
func eachQueue(t *testing.T, f func(t *testing.T, mode Mode, fake func(*fakeCQ) testCQ)) {
	for name, fake := range fakes {
		t.Run(name, func(t *testing.T) {
			for _, mode := range allModes {
				f(t, mode, fake)
			}
		})
	}
}

// When the device calls, completions are handled before its call returns, and no goroutine
// spins in any mode.
func TestCallHandlesWhatCame(t *testing.T) {
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			cq := &callingCQ{fakeCQ: newFakeCQ()}
			handled := 0
			q := Start(Config{CQ: cq, Mode: mode, Handle: func(wcs []verbs.WC, _ time.Time) { handled += len(wcs) }})
			q.awaitFirstTurn()
			for i := range 3 {
				if cq.complete(verbs.WRID(i)); handled != i+1 {
					t.Errorf("%d handled after %d completions", handled, i+1)
				}
			}
			stop(t, q)
		})
	}
}

// awaitFirstTurn waits until the poller has armed the queue for the first time and sleeps. In ModeBusy it does so only
// where the device calls.
func (q *Queue) awaitFirstTurn() {
	for q.Stats().Arms == 0 || q.spinners.Spinning() > 0 {
		runtime.Gosched()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.token.holder != noHolder {
		q.mu.Unlock()
		runtime.Gosched()
		q.mu.Lock()
	}
}

// contenders are waiters that wait for completions with their own numbers.
type contenders struct {
	t       *testing.T
	inside  atomic.Int32
	handled atomic.Int64
	last    verbs.WRID // of the completion handled last; written with the token held

	mu      sync.Mutex
	waiters map[verbs.WRID]*Waiter
}

func (c *contenders) handle(wcs []verbs.WC, _ time.Time) {
	if c.inside.Add(1) != 1 {
		c.t.Error("two goroutines handle at a time")
	}
	for _, wc := range wcs {
		if wc.VendorErr != uint32(c.last) {
			c.t.Errorf("completion %d came after %d", wc.VendorErr, c.last)
		}
		c.last++
		c.handled.Add(1)
		c.mu.Lock()
		w := c.waiters[wc.ID]
		delete(c.waiters, wc.ID)
		c.mu.Unlock()
		if w != nil {
			w.Done()
		}
	}
	c.inside.Add(-1)
}

// Many waiters, completions without a waiter, contexts that end: everything is handled
// once, in order, by one goroutine at a time, and every wait ends.
func TestEverythingIsHandledOnceInOrderByOneAtATime(t *testing.T) {
	eachQueue(t, func(t *testing.T, mode Mode, kind func(*fakeCQ) testCQ) {
		for _, spinners := range []int{1, 3} { // few processors, and enough
			everythingIsHandledOnce(t, mode, spinners, kind)
		}
	})
}

func everythingIsHandledOnce(t *testing.T, mode Mode, spinners int, kind func(*fakeCQ) testCQ) {
	t.Run(fmt.Sprintf("%v, %d may spin", mode, spinners), func(t *testing.T) {
		fake := newFakeCQ()
		fake.number = true
		cq := kind(fake)
		c := &contenders{t: t, waiters: make(map[verbs.WRID]*Waiter)}
		q := Start(Config{CQ: cq, Mode: mode, Handle: c.handle, Batch: 7, Spinners: NewSpinners(spinners)})
		const people, each = 8, 300
		var wg sync.WaitGroup
		var ended atomic.Int64
		for i := range people {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(i), 1))
				for k := range each {
					id := verbs.WRID(i*each + k)
					w := q.NewWaiter()
					c.mu.Lock()
					c.waiters[id] = w
					c.mu.Unlock()
					ctx, cancel := context.WithCancel(t.Context())
					switch r.IntN(8) {
					case 0: // its context ends, before or after
						go cancel()
						go cq.complete(id)
					case 1:
						cq.complete(id)
					default:
						go cq.complete(id)
					}
					if err := w.Wait(ctx); errors.Is(err, context.Canceled) {
						ended.Add(1)
					} else if err != nil || !w.done() {
						t.Errorf("%v, done %v", err, w.done())
					}
					cancel()
				}
			})
		}
		wg.Go(func() { // and completions without a waiter
			for k := range people * each {
				cq.complete(verbs.WRID(1<<40 + k))
			}
		})
		wg.Wait()
		if err := q.Stop(); err != nil {
			t.Error(err)
		}
		// Those whose context ended may have completed after the end.
		if n := c.handled.Load(); n < 2*people*each-ended.Load() || n > 2*people*each {
			t.Errorf("%d of %d were handled, %d contexts ended", n, 2*people*each, ended.Load())
		}
		if n := q.spinners.Spinning(); n != 0 {
			t.Errorf("%d still count as spinning", n)
		}
	})
}

// On virtual time no sleeping goroutine is woken by chance: if none can go on, the bubble
// ends with a deadlock.
func TestWaitersSleepWithoutPolling(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ()
		c := &contenders{t: t, waiters: make(map[verbs.WRID]*Waiter)}
		cq.number = true
		q := Start(Config{CQ: cq, Mode: ModeEvent, Handle: c.handle})
		w := q.NewWaiter()
		c.waiters[1] = w
		time.AfterFunc(time.Hour, func() { cq.complete(1) })
		began := time.Now()
		if err := w.Wait(t.Context()); err != nil || time.Since(began) != time.Hour {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := q.NewWaiter().Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a context that ends gives %v", err)
		}
		synctest.Wait()
		if s := q.Stats(); s.Polls > 10 || s.Completions != 1 || s.Parks != 2 {
			t.Errorf("%+v", s)
		}
		if err := q.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// Spinning ends by the number of polls where time stands still.
func TestAdaptiveGoesToSleepOnVirtualTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := newFakeCQ()
		var w *Waiter
		q := Start(Config{CQ: cq, Mode: ModeAdaptive, Spinners: NewSpinners(1), Handle: func([]verbs.WC, time.Time) { w.Done() }})
		w = q.NewWaiter()
		time.AfterFunc(time.Minute, func() { cq.complete(1) })
		if err := w.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		if err := q.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestDoneBeforeWaitAndTwice(t *testing.T) {
	q := Start(Config{CQ: newFakeCQ(), Handle: func([]verbs.WC, time.Time) {}})
	defer stop(t, q)
	w := q.NewWaiter()
	w.Done()
	w.Done()
	if err := w.Wait(t.Context()); err != nil {
		t.Error(err)
	}
	w.Reset()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Wait(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("a waiter used again gave %v", err)
	}
}

func TestAFailedQueueIsToldOnce(t *testing.T) {
	cause := errors.New("the device is gone")
	for _, mode := range allModes {
		for name, breakIt := range map[string]func(*fakeCQ){
			"poll": func(c *fakeCQ) { c.pollErr = cause },
			"arm":  func(c *fakeCQ) { c.armErr = cause },
			"wait": func(c *fakeCQ) { c.waitErr = cause; close(c.broken) },
		} {
			if mode == ModeBusy && name != "poll" {
				continue // ModeBusy neither arms nor waits
			}
			t.Run(mode.String()+" "+name, func(t *testing.T) {
				cq := newFakeCQ()
				var calls atomic.Int32
				failed := make(chan error, 1)
				var w *Waiter
				q := Start(Config{CQ: cq, Mode: mode, maxSpin: time.Millisecond, Handle: func([]verbs.WC, time.Time) {}, Failed: func(err error) {
					if calls.Add(1) == 1 {
						failed <- err
					}
				}})
				w = q.NewWaiter()
				left := make(chan error)
				go func() { left <- w.Wait(t.Context()) }()
				cq.mu.Lock()
				breakIt(cq)
				cq.mu.Unlock()
				cq.complete(1) // so that the poller polls
				if err := <-failed; !errors.Is(err, cause) || !strings.Contains(err.Error(), "completion") {
					t.Errorf("Failed got %v", err)
				}
				select {
				case err := <-left:
					t.Errorf("Wait on a queue that ended returned %v", err)
				default:
				}
				w.Done() // as the goroutine that ends the queue does
				if err := <-left; err != nil {
					t.Error(err)
				}
				if err := q.Stop(); !errors.Is(err, cause) {
					t.Errorf("Stop: %v", err)
				}
				if n := calls.Load(); n != 1 {
					t.Errorf("Failed was called %d times", n)
				}
			})
		}
	}
}

func TestStopHandlesWhatIsLeftAndWaitersStay(t *testing.T) {
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			for range 50 {
				cq := newFakeCQ()
				var handled atomic.Int64
				q := Start(Config{CQ: cq, Mode: mode, Batch: 3, Handle: func(wcs []verbs.WC, _ time.Time) { handled.Add(int64(len(wcs))) }})
				w := q.NewWaiter()
				left := make(chan error)
				go func() { left <- w.Wait(t.Context()) }()
				for i := range 20 {
					cq.complete(verbs.WRID(i))
				}
				if err := q.Stop(); err != nil {
					t.Fatal(err)
				}
				if n := handled.Load(); n != 20 {
					t.Fatalf("%d of 20 were handled", n)
				}
				cq.complete(21)
				w.Done()
				if err := <-left; err != nil {
					t.Fatal(err)
				}
				if handled.Load() != 20 {
					t.Fatal("something was handled after Stop")
				}
			}
		})
	}
}

// Done may be called after the check of Wait and before it parks.
func TestDoneBetweenCheckAndPark(t *testing.T) {
	q := Start(Config{CQ: newFakeCQ(), Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) {}})
	defer stop(t, q)
	w := q.NewWaiter()
	w.Done()
	w.park(t.Context()) // must not sleep: nothing wakes it
}

func TestAFailureIsReportedOnceAndNotAfterStop(t *testing.T) {
	one, other := errors.New("one"), errors.New("other")
	for _, stopped := range []bool{false, true} {
		var reported []error
		q := Start(Config{CQ: newFakeCQ(), Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) {}, Failed: func(err error) { reported = append(reported, err) }})
		if stopped {
			stop(t, q)
		}
		q.fail(one, false)
		q.fail(other, false)
		if err := q.Stop(); !errors.Is(err, one) {
			t.Errorf("Stop: %v", err)
		}
		if stopped != (len(reported) == 0) || len(reported) > 1 {
			t.Errorf("stopped before: %v; reported: %v", stopped, reported)
		}
	}
}

// A poller that a waiter has woken sleeps again.
func TestThePollerSleepsAfterACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Start(Config{CQ: newFakeCQ(), Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) {}})
		synctest.Wait()
		for range 3 {
			q.mu.Lock()
			q.token.wakePoller()
			q.wakePollerLocked()
			q.mu.Unlock()
			synctest.Wait() // for ever, if it does not sleep
		}
		q.mu.Lock()
		holder := q.token.holder
		q.mu.Unlock()
		if s := q.Stats(); s.Wakeups != 3 || s.IdleWakeups != 0 || holder != noHolder {
			t.Errorf("%+v, holder %d", s, holder)
		}
		stop(t, q)
	})
}

// A waiter that does not get the token parks, though the holder polls for ever.
func TestAWaiterWithoutTheTokenParks(t *testing.T) {
	q := Start(Config{CQ: newFakeCQ(), Mode: ModeBusy, Spinners: NewSpinners(2), Handle: func([]verbs.WC, time.Time) {}})
	var wg sync.WaitGroup
	ws := []*Waiter{q.NewWaiter(), q.NewWaiter()}
	for _, w := range ws {
		wg.Go(func() {
			if err := w.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	for q.Stats().Parks == 0 && t.Context().Err() == nil {
		runtime.Gosched()
	}
	for _, w := range ws {
		w.Done()
	}
	wg.Wait()
	if err := q.Stop(); err != nil {
		t.Error(err)
	}
}

// A waiter that is done handles a bounded number of batches for others.
func TestALeavingWaiterHandlesABoundedNumberOfBatches(t *testing.T) {
	b := token[int]{holder: waiter, waiter: 1}
	var u turn
	for n := 0; ; n++ {
		if s := b.release(&u, true); s == stepWakePoller {
			break
		} else if s != stepArm || n > leaveRounds {
			t.Fatalf("step %d after %d batches", s, n)
		}
	}
	if b.holder != poller || !b.waking {
		t.Errorf("%+v", b)
	}
}

func TestModesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, m := range allModes {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("%v: %v, %v", m, got, err)
		}
	}
	if _, err := ParseMode("fast"); err == nil || !strings.Contains(err.Error(), `"fast"`) {
		t.Errorf("%v", err)
	}
}

func TestSpinnersAreBounded(t *testing.T) {
	s := NewSpinners(2)
	got := []bool{s.enter(), s.enter(), s.enter()}
	s.leave()
	if got = append(got, s.enter()); !slices.Equal(got, []bool{true, true, false, true}) {
		t.Errorf("%v", got)
	}
}

// A steady wait allocates nothing.
func TestWaitingAllocatesNothing(t *testing.T) {
	for _, mode := range allModes {
		cq := newFakeCQ()
		cq.queue = make([]verbs.WC, 0, 8)
		var w *Waiter
		q := Start(Config{CQ: cq, Mode: mode, Handle: func([]verbs.WC, time.Time) { w.Done() }})
		w = q.NewWaiter()
		if n := testing.AllocsPerRun(1000, func() {
			cq.complete(1)
			if err := w.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.Reset()
		}); n >= 1 {
			t.Errorf("%v: %v allocations", mode, n)
		}
		stop(t, q)
	}
}

// Watch calls its function once, whether Done comes before or after it; then Wait returns
// at once. Where the waiter would poll, Watch returns false and calls nothing.
func TestWatch(t *testing.T) {
	cq := newFakeCQ()
	var w *Waiter
	q := Start(Config{CQ: cq, Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) { w.Done() }})
	w = q.NewWaiter()
	for i, before := range []bool{true, false, true, false} {
		calls := make(chan struct{}, 2)
		if before {
			w.Done()
		}
		if !w.Watch(func() { calls <- struct{}{} }) {
			t.Fatalf("%d: Watch refuses in event mode, where no waiter polls", i)
		}
		if !before {
			if len(calls) > 0 {
				t.Fatalf("%d: called before it is done", i)
			}
			cq.complete(1)
		}
		<-calls
		if err := w.Wait(t.Context()); err != nil || len(calls) > 0 {
			t.Errorf("%d: %v, and %d calls too many", i, err, len(calls))
		}
		w.Reset()
	}
	stop(t, q)

	// Where waiters spin Watch is refused, unless no more may spin.
	for _, mode := range []Mode{ModeAdaptive, ModeBusy} {
		spinners := NewSpinners(1)
		q := Start(Config{CQ: newFakeCQ(), Mode: mode, Handle: func([]verbs.WC, time.Time) {}, Spinners: spinners})
		if mode == ModeAdaptive { // in ModeBusy the poller does not count
			q.awaitFirstTurn()
		}
		w := q.NewWaiter()
		if w.Watch(func() { t.Error("called") }) {
			t.Errorf("%v: Watch is not refused", mode)
		}
		w.Done()
		if err := w.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		spinners.enter() // some other goroutine
		w.Reset()
		calls := 0
		if !w.Watch(func() { calls++ }) {
			t.Errorf("%v: Watch is refused where the waiter could not spin", mode)
		}
		w.Done()
		if calls != 1 {
			t.Errorf("%v: %d calls", mode, calls)
		}
		stop(t, q)
	}
}

// Many watch while others complete: each is called once.
func TestEachWatchIsCalledOnce(t *testing.T) {
	eachQueue(t, func(t *testing.T, mode Mode, kind func(*fakeCQ) testCQ) {
		if mode == ModeBusy {
			return
		}
		t.Run(mode.String(), func(t *testing.T) {
			cq := kind(newFakeCQ())
			c := &contenders{t: t, waiters: make(map[verbs.WRID]*Waiter)}
			fake, ok := cq.(*callingCQ)
			if ok {
				fake.number = true
			} else if f, ok := cq.(*fakeCQ); ok {
				f.number = true
			}
			q := Start(Config{CQ: cq, Mode: mode, Handle: c.handle})
			var all sync.WaitGroup
			for i := range 500 {
				id := verbs.WRID(i)
				w := q.NewWaiter()
				c.mu.Lock()
				c.waiters[id] = w
				c.mu.Unlock()
				all.Add(1)
				go cq.complete(id)
				if !w.Watch(all.Done) { // twice would panic
					all.Go(func() {
						if err := w.Wait(t.Context()); err != nil {
							t.Error(err)
						}
						all.Done()
					})
				}
			}
			all.Wait()
			stop(t, q)
		})
	})
}

// TestAWaiterDrivesTheDevice: on a queue whose polls do the work of the device a waiter disarms it and
// polls, in ModeAdaptive and ModeBusy, and arms it when it leaves. In ModeEvent it sleeps.
func TestAWaiterDrivesTheDevice(t *testing.T) {
	for mode, drives := range map[Mode]bool{ModeAdaptive: true, ModeBusy: true, ModeEvent: false} {
		t.Run(mode.String(), func(t *testing.T) {
			cq := &drivenCQ{callingCQ: &callingCQ{fakeCQ: newFakeCQ()}}
			var w *Waiter
			q := Start(Config{CQ: cq, Mode: mode, Spinners: NewSpinners(1), maxSpin: time.Minute, Handle: func([]verbs.WC, time.Time) { w.Done() }})
			w = q.NewWaiter()
			q.awaitFirstTurn() // else the poller may keep the token for longer than a waiter waits for it
			if drives {
				cq.mu.Lock()
				cq.work = func() { cq.complete(1) } // nobody else does it
				cq.mu.Unlock()
			} else {
				go cq.complete(1)
			}
			if err := w.Wait(t.Context()); err != nil {
				t.Error(err)
			}
			cq.mu.Lock()
			if got := cq.disarmed > 0; got != drives || cq.polling || cq.armings != cq.disarmed {
				t.Errorf("disarmed %d times, armed again %d times, still polling: %v", cq.disarmed, cq.armings, cq.polling)
			}
			cq.mu.Unlock()
			stop(t, q)
		})
	}
}
