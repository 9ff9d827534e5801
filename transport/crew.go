package transport

import (
	"sync"
	"sync/atomic"
)

// crew does jobs, each on a goroutine that does nothing else meanwhile. It keeps some
// goroutines for the next: an attempt of a receive goes deep, and a new goroutine's
// stack would be grown for each, which took an eighth of the time of a small receive.
type crew[J any] struct {
	do   func(J)
	jobs chan J         // without room: only who waits takes one; closed by end
	open sync.WaitGroup // jobs that are expected or done
	work sync.WaitGroup // goroutines
	once sync.Once
	idle atomic.Int32
}

// maxResting is how many goroutines wait at most: their stacks are 8 KiB or 16 KiB
// each.
const maxResting = 32

func newCrew[J any](do func(J)) *crew[J] {
	return &crew[J]{do: do, jobs: make(chan J)}
}

// expect says that one Go will come, or one did: end waits for it.
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

func (c *crew[J]) stay(j J) {
	for more := true; more; {
		c.do(j)
		c.did()
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
}
