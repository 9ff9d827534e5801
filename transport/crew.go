package transport

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// crew does jobs, each on a goroutine that does nothing else meanwhile. It keeps some
// goroutines for the next: an attempt of a receive goes deep, and a new goroutine's
// stack would be grown for each, which took an eighth of the time of a small receive.
//
// Where processors are few, a job that a callback begins, as a receive that asks for the
// next one does, is left to the worker that runs the callback (Soon): it comes to it when
// the callback has returned, and nobody has to be woken. To wake a goroutine wakes a thread
// while a processor of Go's is idle, and with two processors that one ran in place of the
// peer: 8 bytes by callback took 3 to 24 % longer. With more there is a place for it, and
// what a callback begins is done beside it. What no callback returns to in time others do.
type crew[J any] struct {
	do   func(J) bool   // reports whether it has called back (calls)
	jobs chan J         // without room: only who waits takes one; closed by end
	open sync.WaitGroup // jobs that are expected or done
	work sync.WaitGroup // goroutines
	once sync.Once
	idle atomic.Int32

	leaves  bool         // jobs to callbacks
	calling atomic.Int32 // workers in a callback; it falls with mu held

	mu    sync.Mutex
	left  []leftJob[J] // to them, the oldest first
	late  int          // rises with each that was taken late, and falls with each that was not
	haste int          // how many more are left to nobody, since callbacks take long
	timer *time.Timer  // calls mind; nil before it is first needed
	armed bool
	pause time.Duration // that timer was set to
}

// leftJob is a job that a worker does when its callback has returned.
type leftJob[J any] struct {
	job J
	at  time.Time
}

const (
	// maxResting is how many goroutines wait at most: their stacks are 8 KiB or 16 KiB
	// each.
	maxResting = 32

	// A callback that took longer than lateAfter to return to a job would better have had
	// it done beside it. One that is late weighs as much as lateWeight that are not: the
	// machine, too, may have had something else to do. At lateMost the next hasteAfter jobs
	// are left to nobody.
	lateAfter  = 50 * time.Microsecond
	lateWeight = 8
	lateMost   = 4 * lateWeight
	hasteAfter = 1000

	// mindFirst is when it is first looked whether a callback has not returned at all, and
	// mindMost how long after a look the next one is, at most: each wakes a thread.
	mindFirst = time.Millisecond
	mindMost  = 16 * time.Millisecond

	// fewProcessors is up to how many jobs are left to callbacks: fewer than two goroutines
	// of a process may spin there (poll.Spinners).
	fewProcessors = 3
)

// newCrew returns a crew on so many processors.
func newCrew[J any](processors int, do func(J) bool) *crew[J] {
	return &crew[J]{do: do, jobs: make(chan J), leaves: processors <= fewProcessors}
}

// expect says that one Go or Soon will come, or one did: end waits for it.
func (c *crew[J]) expect() { c.open.Add(1) }

// did says that a job that was expected has been done: by the crew, or by somebody else
// in place of Go.
func (c *crew[J]) did() { c.open.Done() }

// Go does a job that was expected on a goroutine of its own.
func (c *crew[J]) Go(j J) {
	select {
	case c.jobs <- j:
	default:
		c.work.Go(func() { c.stay(j) })
	}
}

// Soon does a job that was expected on a goroutine of its own, or on one whose callback
// returns soon.
func (c *crew[J]) Soon(j J) {
	if !c.leaves || c.calling.Load() == 0 || !c.leave(j) {
		c.Go(j)
	}
}

// leave leaves a job to whoever is in a callback.
func (c *crew[J]) leave(j J) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.haste > 0 {
		c.haste--
		return false
	}
	if c.calling.Load() == 0 {
		return false
	}
	c.left = append(c.left, leftJob[J]{j, time.Now()})
	if !c.armed {
		c.armed, c.pause = true, min(max(2*c.pause, mindFirst), mindMost)
		if c.timer == nil {
			c.timer = time.AfterFunc(c.pause, c.mind)
		} else {
			c.timer.Reset(c.pause)
		}
	}
	return true
}

// calls says that the job that is being done calls back now, and does nothing after that.
func (c *crew[J]) calls() { c.calling.Add(1) }

// called says that it has, and takes a job that was left.
func (c *crew[J]) called() (j J, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.calling.Add(-1) == 0
	if len(c.left) == 0 {
		return j, false
	}
	j = c.left[0].job
	if time.Since(c.left[0].at) <= lateAfter {
		c.late = max(0, c.late-1)
	} else if c.late += lateWeight; c.late >= lateMost {
		c.late, c.haste = 0, hasteAfter
	}
	c.left = slices.Delete(c.left, 0, 1)
	if last { // nobody else comes for the others
		c.hand(len(c.left))
	}
	return j, true
}

// hand hands the oldest n jobs that were left to others. Called with the lock held.
func (c *crew[J]) hand(n int) {
	for _, l := range c.left[:n] {
		c.Go(l.job)
	}
	c.left = slices.Delete(c.left, 0, n)
}

// mind hands over what was left to callbacks that do not return.
func (c *crew[J]) mind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, n := time.Now(), 0
	for n < len(c.left) && now.Sub(c.left[n].at) >= mindFirst {
		n++
	}
	if n > 0 {
		c.hand(n)
		c.haste, c.pause = hasteAfter, 0
	}
	if c.armed = len(c.left) > 0; c.armed {
		c.pause = mindFirst
		c.timer.Reset(c.pause)
	}
}

func (c *crew[J]) stay(j J) {
	for more := true; more; {
		called := c.do(j)
		c.did()
		if called {
			if j, more = c.called(); more {
				continue
			}
		}
		j, more = c.next()
	}
}

// next waits for something to do; false for nothing any more.
func (c *crew[J]) next() (j J, ok bool) {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > maxResting {
		return j, false
	}
	j, ok = <-c.jobs
	return j, ok
}

// end waits until all jobs have been done, and lets the goroutines go. None may be
// expected from then on.
func (c *crew[J]) end() {
	c.open.Wait()
	c.once.Do(func() { close(c.jobs) })
	c.work.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.timer != nil {
		c.timer.Stop() // it has nothing to hand over
	}
}
