package progress

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// sleepyCQ has polls that take time, on virtual time.
type sleepyCQ struct{ *fakeCQ }

func (c sleepyCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := c.fakeCQ.Poll(wcs)
	time.Sleep(100 * time.Nanosecond)
	return n, err
}

// In ModeAdaptive a short wait does not sleep, a long one sleeps after spinFor, and an
// idle queue is not polled.
func TestASpinIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := sleepyCQ{newFakeCQ()}
		var w *Waiter
		q := Start(Config{CQ: cq, Mode: ModeAdaptive, Spinners: NewSpinners(1), Handle: func([]verbs.WC, time.Time) { w.Done() }})
		w = q.NewWaiter()
		time.Sleep(time.Millisecond) // the poller's first spin ends
		synctest.Wait()
		for _, c := range []struct {
			takes time.Duration
			parks uint64
		}{{spinFor / 2, 0}, {20 * spinFor, 1}, {spinFor / 2, 0}} {
			before := q.Stats()
			time.AfterFunc(c.takes, func() { cq.complete(1) })
			if err := w.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			w.Reset()
			time.Sleep(time.Millisecond) // goroutines that spin now stop
			synctest.Wait()
			s := q.Stats()
			if n := s.Parks - before.Parks; n != c.parks {
				t.Errorf("a wait of %v slept %d times, want %d", c.takes, n, c.parks)
			}
			// At most two spins: the waiter's, and the poller's after the completion.
			if n, most := s.Polls-before.Polls, uint64(2*(spinFor/100+2*checkEvery)); n > most {
				t.Errorf("%d polls in a wait of %v, want %d at most", n, c.takes, most)
			}
		}
		idle := q.Stats()
		time.Sleep(time.Hour)
		if s := q.Stats(); s != idle {
			t.Errorf("in an idle hour: %+v, before %+v", s, idle)
		}
		stop(t, q)
	})
}

// With one processor other goroutines run while one spins, and their completions are
// handled.
func TestOneProcessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, mode := range allModes {
		t.Run(mode.String(), func(t *testing.T) {
			for _, spinners := range []int{0, 1} { // 0 means the default, which is none on one processor
				cq := newFakeCQ()
				var w *Waiter
				q := Start(Config{CQ: cq, Mode: mode, Spinners: NewSpinners(spinners), Handle: func([]verbs.WC, time.Time) { w.Done() }})
				w = q.NewWaiter()
				for range 200 {
					go cq.complete(1)
					if err := w.Wait(t.Context()); err != nil {
						t.Fatal(err)
					}
					w.Reset()
				}
				stop(t, q)
			}
		})
	}
}

// A spinning goroutine keeps its processor for yieldEvery polls, not until Go's
// scheduler takes it away (10 ms, some hundred thousand polls). The scheduler may run it twice in a row.
func TestASpinningGoroutineYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	cq := newFakeCQ()
	q := Start(Config{CQ: cq, Mode: ModeBusy, Handle: func([]verbs.WC, time.Time) {}})
	const times = 100
	before := q.Stats().Polls
	for range times {
		runtime.Gosched() // to the poller, and back
	}
	if n := q.Stats().Polls - before; n > 2*times*yieldEvery {
		t.Errorf("%d polls while another goroutine wanted to run %d times", n, times)
	}
	stop(t, q)
}

// A waiter whose context ends returns even if its queue is never empty.
func TestAContextEndsOnAQueueThatIsNeverEmpty(t *testing.T) {
	for _, mode := range []Mode{ModeAdaptive, ModeBusy} {
		t.Run(mode.String(), func(t *testing.T) {
			cq := newFakeCQ()
			var polled, enough atomic.Bool
			q := Start(Config{CQ: cq, Mode: mode, maxSpin: time.Hour, Spinners: NewSpinners(1), Handle: func([]verbs.WC, time.Time) {
				polled.Store(true)
				if !enough.Load() {
					cq.complete(1)
				}
			}})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- q.NewWaiter().Wait(ctx) }()
			cq.complete(1)
			for !polled.Load() {
				runtime.Gosched()
			}
			cancel()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("it waits on")
				enough.Store(true)
				err := <-ended
				t.Logf("late, with %v", err)
			}
			enough.Store(true)
			if err := q.Stop(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Only Done ends a wait, whatever wakes the sleeping goroutine.
func TestAnEarlierWaitEndsNoLaterOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := Start(Config{CQ: newFakeCQ(), Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) {}})
		w := q.NewWaiter()
		w.wake <- struct{}{} // by a Done that had not returned before Reset
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := w.Wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it ends with %v", err)
		}
		if err := q.Stop(); err != nil {
			t.Error(err)
		}
	})
}
