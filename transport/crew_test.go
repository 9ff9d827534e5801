package transport

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A crew runs everything at once, keeps no more goroutines than it may, and none
// after its end.
func TestCrew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(fewProcessors, func(f func()) bool { f(); return false })
		for range 3 {
			var running, all sync.WaitGroup
			release := make(chan struct{})
			for range 2 * maxResting {
				running.Add(1)
				all.Add(1)
				c.expect()
				c.Go(func() {
					defer all.Done()
					running.Done()
					<-release
				})
			}
			running.Wait() // all at once, whatever the others wait for
			close(release)
			all.Wait()
			synctest.Wait()
			if n := c.idle.Load(); n != maxResting {
				t.Errorf("%d goroutines wait, want %d", n, maxResting)
			}
		}
		c.end()
		if n := c.idle.Load(); n != 0 {
			t.Errorf("%d goroutines wait after the end", n)
		}
	})
}

// callbacks is a crew whose jobs are callbacks.
func callbacks(processors int) (c *crew[func()]) {
	c = newCrew(processors, func(f func()) bool {
		c.calls()
		f()
		return true
	})
	return c
}

func (c *crew[J]) soon(j J) {
	c.expect()
	c.Soon(j)
}

// TestWhatACallbackBeginsIsDoneAfterIt, by the same goroutine: nobody is woken. What else it
// begins others do at once when it has returned.
func TestWhatACallbackBeginsIsDoneAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callbacks(fewProcessors)
		n := 0
		var again func()
		again = func() {
			if n++; n < 100 {
				c.soon(again)
			}
		}
		c.soon(again)
		synctest.Wait()
		if resting := c.idle.Load(); n != 100 || resting != 1 {
			t.Errorf("%d callbacks, after which %d goroutines rest: want 100 of one", n, resting)
		}
		release := make(chan struct{})
		var running atomic.Int32
		wait := func() {
			running.Add(1)
			<-release
		}
		c.soon(func() {
			for range 3 {
				c.soon(wait)
			}
			if n := running.Load(); n != 0 {
				t.Errorf("%d jobs run beside a callback that returns at once", n)
			}
		})
		synctest.Wait()
		if n := running.Load(); n != 3 {
			t.Errorf("%d of 3 jobs run", n)
		}
		close(release)
		c.end()
	})
}

// TestCallbackThatWaitsForWhatItHasBegun gets it, since others do it.
func TestCallbackThatWaitsForWhatItHasBegun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callbacks(fewProcessors)
		var waits []time.Duration
		for range 3 {
			over := make(chan struct{})
			c.soon(func() {
				began, done := time.Now(), make(chan struct{})
				c.soon(func() { close(done) })
				<-done
				waits = append(waits, time.Since(began))
				close(over)
			})
			<-over
		}
		if waits[0] < mindFirst || waits[0] > 2*mindMost || waits[1] != 0 || waits[2] != 0 {
			t.Errorf("they waited %v: the first for mind, the others not at all", waits)
		}
		c.end()
	})
}

// TestLongCallbacksRunBesideWhatTheyBegin: a few delay it, then it is done at once; and when
// callbacks have become short, it is left to them again.
func TestLongCallbacksRunBesideWhatTheyBegin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callbacks(fewProcessors)
		delayed := func(n int, long time.Duration) (delayed int) {
			var all sync.WaitGroup
			for range n {
				all.Add(1)
				c.soon(func() {
					began := time.Now()
					c.soon(func() {
						if time.Since(began) > 0 {
							delayed++
						}
						all.Done()
					})
					time.Sleep(long)
				})
				all.Wait()
				time.Sleep(long)
				synctest.Wait()
			}
			return delayed
		}
		if n := delayed(100, 10*lateAfter); n != lateMost/lateWeight {
			t.Errorf("%d of 100 jobs waited for a long callback, want %d", n, lateMost/lateWeight)
		}
		// Of hasteAfter jobs that are left to none, 100 less those few have been done.
		if n := delayed(hasteAfter+lateMost/lateWeight, lateAfter/2); n != 100 {
			t.Errorf("%d jobs were left to short callbacks again, want 100", n)
		}
		c.end()
	})
}

// TestCallbacksRunBesideWhatTheyBeginWhereThereIsPlace for both.
func TestCallbacksRunBesideWhatTheyBeginWhereThereIsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := callbacks(fewProcessors + 1)
		began := time.Now()
		c.soon(func() {
			done := make(chan struct{})
			c.soon(func() { close(done) })
			<-done
		})
		c.end()
		if d := time.Since(began); d != 0 {
			t.Errorf("it waited %v for the callback", d)
		}
	})
}
