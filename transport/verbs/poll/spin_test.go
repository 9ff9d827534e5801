package poll

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

// Each time that others are let run may wake a thread, so who spins lets them every
// yieldAfter, after a batch that has made somebody ready, in ModeAdaptive after each where
// others compute, and on one processor at each look.
func TestWhoSpinsLetsOthersRunNowAndThen(t *testing.T) {
	// spin handles some batches, and spins until others were let run so often after
	// them. It calls handle with each.
	spin := func(t *testing.T, mode Mode, batches, after uint64, handle func(*Queue)) (s Stats, took time.Duration) {
		t.Helper()
		cq := newFakeCQ()
		handled := make(chan struct{})
		began := time.Now()
		var q *Queue
		q = start(t, Config{CQ: cq, Mode: mode, MaxSpin: time.Hour, Handle: func([]verbs.WC, time.Time) {
			handle(q)
			handled <- struct{}{}
		}})
		until := func(so func(Stats) bool) {
			for !so(q.Stats()) && time.Since(began) < time.Minute {
				runtime.Gosched()
			}
		}
		for range batches {
			cq.complete(1)
			<-handled
			before := q.Stats().Polls
			until(func(s Stats) bool { return s.Polls >= before+4*checkEvery })
		}
		before := q.Stats().Yields
		until(func(s Stats) bool { return s.Yields >= before+after })
		if err := q.Stop(); err != nil {
			t.Error(err)
		}
		return q.Stats(), time.Since(began)
	}
	t.Run("on two processors", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
		const after, batches = 4, 200
		for _, c := range []struct {
			what           string
			mode           Mode
			batches, after uint64
			handle         func(*Queue)
			least          uint64 // for the batches
		}{
			{"no batches", ModeBusy, 0, after, func(*Queue) {}, 0},
			{"batches that make nobody ready", ModeBusy, batches, after, func(*Queue) {}, 0},
			{"batches that make somebody ready", ModeBusy, batches, after, (*Queue).Rouse, batches},
			{"batches while others compute", ModeAdaptive, batches, 0, func(q *Queue) { q.gaps.pressure.Store(2) }, batches},
			{"batches when others computed before", ModeBusy, batches, after, func(q *Queue) { q.gaps.pressure.Store(1) }, 0},
		} {
			s, took := spin(t, c.mode, c.batches, c.after, c.handle)
			if most := uint64(took/yieldAfter) + c.least + 2; s.Yields < c.least+c.after || s.Yields > most {
				t.Errorf("%s: %d times in %v and %d polls; %d to %d are right", c.what, s.Yields, took, s.Polls, c.least+c.after, most)
			}
		}
	})
	t.Run("on one processor", func(t *testing.T) {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
		if s, _ := spin(t, ModeBusy, 0, 1000, func(*Queue) {}); s.Yields < s.Polls/checkEvery {
			t.Errorf("%d times with %d polls", s.Yields, s.Polls)
		}
	})
}

// On a queue that is never empty a waiter whose context ends returns all the same.
func TestAContextEndsOnAQueueThatIsNeverEmpty(t *testing.T) {
	for _, mode := range []Mode{ModeAdaptive, ModeBusy} {
		t.Run(mode.String(), func(t *testing.T) {
			cq := newFakeCQ()
			var polled, enough atomic.Bool
			q := start(t, Config{CQ: cq, Mode: mode, MaxSpin: time.Hour, Spinners: NewSpinners(1), Handle: func([]verbs.WC, time.Time) {
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

// Whatever has woken who sleeps, it is only Done that ends the wait.
func TestNobodyIsDoneByTheWaitBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := start(t, Config{CQ: newFakeCQ(), Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) {}})
		w := q.NewWaiter()
		w.wake <- struct{}{} // by a Done that had not returned when w was made new
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

// Who spins for twice as long as it took of late, and 50 us at the least, or in ModeBusy for 200 us, has the kernel run
// the processes that wait for its processor, at each look from then on: one of them may be
// the peer.
func TestWhoSpinsLateLetsOtherProcessesRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		let := 0
		q := start(t, Config{CQ: newFakeCQ(), Mode: ModeEvent, Handle: func([]verbs.WC, time.Time) {}, others: func() { let++ }})
		for _, c := range []struct {
			who      string
			w        *Waiter
			b        *budget
			expected time.Duration
			late     time.Duration
		}{
			{"a waiter", q.NewWaiter(), &q.waits, time.Millisecond, 2 * time.Millisecond},
			{"a waiter of short waits", q.NewWaiter(), &q.waits, time.Microsecond, 50 * time.Microsecond},
			{"the resident", nil, &q.gaps, 300 * time.Microsecond, 600 * time.Microsecond},
		} {
			q.waits.expected.Store(0)
			q.gaps.expected.Store(0)
			c.b.expected.Store(int64(c.expected))
			s := spin{q: q, w: c.w, ctx: t.Context(), still: true, budget: time.Hour, since: time.Now()}
			look := func(after time.Duration, want int) {
				t.Helper()
				time.Sleep(after)
				let = 0
				for range checkEvery {
					if s.over(0) {
						t.Fatalf("%s has spun enough", c.who)
					}
				}
				if let != want {
					t.Errorf("%s that expects %v lets others run %d times after %v, want %d", c.who, c.expected, let, time.Since(s.since), want)
				}
			}
			look(c.late, 0)
			look(1, 1)
			look(1, 1)
			q.mode = ModeBusy
			s.since = time.Now()
			look(busyLate, 0)
			look(1, 1)
			q.mode = ModeEvent
		}
		stop(t, q)
	})
}
