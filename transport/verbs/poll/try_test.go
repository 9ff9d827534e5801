package poll

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// sleepyCQ takes its time, on virtual time: a poll that finds nothing, and above all
// to wake who sleeps.
type sleepyCQ struct {
	*fakeCQ
	wake time.Duration
}

func (c *sleepyCQ) Poll(wcs []verbs.WC) (int, error) {
	n, err := c.fakeCQ.Poll(wcs)
	if n == 0 && err == nil {
		time.Sleep(100 * time.Nanosecond)
	}
	return n, err
}

func (c *sleepyCQ) Wait(ctx context.Context) error {
	err := c.fakeCQ.Wait(ctx)
	if err == nil {
		time.Sleep(c.wake)
	}
	return err
}

// Who has learnt to sleep from what took long finds out that it does not any more,
// although being woken alone takes longer than anybody would spin. Where it never
// pays, next to nothing is spent on finding out, and nothing at all when nobody waits.
func TestASpinIsTriedNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const longest = 50 * time.Microsecond
		cq := &sleepyCQ{newFakeCQ(), 100 * time.Microsecond}
		var w *Waiter
		q := start(t, Config{CQ: cq, Mode: ModeAdaptive, MaxSpin: longest, Spinners: NewSpinners(1), Handle: func([]verbs.WC, time.Time) { w.Done() }})
		w = q.NewWaiter()
		round := func(n int, takes time.Duration) (s Stats, took time.Duration) {
			before, began := q.Stats(), time.Now()
			for range n {
				time.AfterFunc(takes, func() { cq.complete(1) })
				if err := w.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				w.Reset()
			}
			s = q.Stats()
			s.Polls -= before.Polls
			s.Parks -= before.Parks
			return s, time.Since(began)
		}
		round(100, 10*time.Millisecond)
		if s, _ := round(10, 10*time.Millisecond); s.Parks != 10 {
			t.Fatalf("who waits 10 ms sleeps %d times of 10", s.Parks)
		}
		round(minRest+2*maxRest, 20*time.Microsecond) // the tries have become rare
		if _, took := round(100, 20*time.Microsecond); took > 100*21*time.Microsecond {
			t.Errorf("100 waits of 20 µs take %v", took)
		}
		const many = 8 * maxRest
		if s, _ := round(many, 10*time.Millisecond); s.Polls > 20*many {
			t.Errorf("%d polls in %d waits of 10 ms", s.Polls, many)
		}
		time.Sleep(time.Second)
		idle := q.Stats()
		time.Sleep(time.Hour)
		if s := q.Stats(); s != idle {
			t.Errorf("in an idle hour: %+v, before %+v", s, idle)
		}
		stop(t, q)
	})
}

// Tries that do not pay become rare, and are four in a row.
func TestTriesBecomeRare(t *testing.T) {
	b := budget{longest: 50 * time.Microsecond}
	for range 50 {
		b.observe(time.Second)
	}
	var tries []int // the waits that spin
	for n := range 16 * maxRest {
		if b.spin() > 0 {
			tries = append(tries, n)
		}
		b.observe(time.Second)
	}
	if len(tries) < 3*triesInRow {
		t.Fatalf("%d tries", len(tries))
	}
	if tries[0] != minRest-1 || tries[triesInRow-1] != minRest-1+triesInRow-1 || tries[triesInRow] < 3*minRest-1 {
		t.Errorf("the first tries: %v", tries[:2*triesInRow])
	}
	if n := len(tries); n > triesInRow*24 || tries[n-1]-tries[n-1-triesInRow] < maxRest {
		t.Errorf("%d tries in %d waits, the last ones at %v", n, 16*maxRest, tries[n-2*triesInRow:])
	}
	for b.spin() == 0 {
		b.observe(time.Second)
	}
	b.observe(10 * time.Microsecond)
	if b.spin() != b.longest {
		t.Error("one that pays is followed by none")
	}
}

// A machine that is busy with waking those who sleep is found out by a try: it spins for
// the whole time, and one that pays ends the pressure.
func TestATryEndsThePressure(t *testing.T) {
	b := budget{longest: 50 * time.Microsecond, slow: slowYield}
	asleep := func() { // all waits that sleep, or spin in vain, are in time for who would spin long enough
		for range maxPressure {
			b.yielded(time.Millisecond)
		}
		b.observe(40 * time.Microsecond)
	}
	asleep()
	waits := 0
	var budget time.Duration
	for ; budget == 0 && waits < 10*minRest; waits++ {
		budget = b.spin()
		if budget == 0 {
			asleep()
		}
	}
	if budget != b.longest || waits != minRest {
		t.Fatalf("a spin of %v after %d waits", budget, waits)
	}
	b.observe(10 * time.Microsecond)
	if got := b.spin(); got != b.longest {
		t.Errorf("%v after a try that paid", got)
	}
	b.yielded(time.Millisecond)
	if got := b.spin(); got != b.longest/2 {
		t.Errorf("%v after a slow yield", got)
	}
}

// What takes longer than is left of the budget is slept for at once.
func TestNoSpinThatWouldEndTooEarly(t *testing.T) {
	b := budget{longest: 50 * time.Microsecond, slow: slowYield}
	for range 50 {
		b.observe(30 * time.Microsecond)
	}
	if got := b.spin(); got != b.longest {
		t.Errorf("%v for 30 µs", got)
	}
	b.yielded(time.Millisecond)
	if got := b.spin(); got != 0 {
		t.Errorf("%v for 30 µs, with half of 50 µs left", got)
	}
}

// A wait that was told to spin spins for that long: a try is not asked for twice.
func TestOneBudgetAWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cq := &sleepyCQ{newFakeCQ(), 0}
		var w *Waiter
		q := start(t, Config{CQ: cq, Mode: ModeAdaptive, MaxSpin: 50 * time.Microsecond, Spinners: NewSpinners(1), Handle: func([]verbs.WC, time.Time) { w.Done() }})
		for range 50 {
			q.waits.observe(time.Second)
		}
		time.Sleep(time.Millisecond) // of virtual time: the resident's spin has ended
		w = q.NewWaiter()
		tries := 0
		for range minRest + triesInRow - 1 {
			q.waits.spin()
			if q.waits.trying.Load() {
				tries++
				break
			}
		}
		if left := q.waits.tries.Load(); tries != 1 || left != triesInRow-1 {
			t.Fatalf("%d tries, %d are left", tries, left)
		}
		time.AfterFunc(time.Millisecond, func() { cq.complete(1) })
		if err := w.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left := q.waits.tries.Load(); left != triesInRow-2 {
			t.Errorf("after one wait %d tries are left of %d", left, triesInRow-1)
		}
		stop(t, q)
	})
}

// One of three that takes very long is no reason to sleep: the others come in time.
func TestAFewLongWaitsAreNoReasonToSleep(t *testing.T) {
	b := budget{longest: 50 * time.Microsecond, slow: slowYield}
	for n := range 1000 {
		if got := b.spin(); got != b.longest {
			t.Fatalf("%v after %d waits", got, n)
		}
		d := 30 * time.Microsecond
		if n%3 == 2 {
			d = time.Second
		}
		b.observe(d)
	}
}

// A slow yield in one of six waits, as threads that wake for a moment make them, leaves
// most of the budget; with one in each most sleep.
func TestAFewSlowYieldsAreNoPressure(t *testing.T) {
	for every, least := range map[int]time.Duration{6: 12 * time.Microsecond, 1: 0} {
		b := budget{longest: 50 * time.Microsecond, slow: slowYield}
		spun := 0
		for n := range 1000 {
			if n%every == 0 {
				b.yielded(time.Millisecond)
			}
			if got := b.spin(); got > 0 && got >= least {
				spun++
			}
			b.observe(5 * time.Microsecond)
		}
		if every > 1 && spun != 1000 {
			t.Errorf("with a slow yield in one of %d waits %d of 1000 spin for %v", every, spun, least)
		} else if every == 1 && spun > 250 {
			t.Errorf("with one in each %d of 1000 spin", spun)
		}
	}
}
