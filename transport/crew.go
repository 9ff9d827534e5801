package transport

import (
	"sync"
	"sync/atomic"
)

// crew runs functions, each on a goroutine that does nothing else meanwhile. It
// keeps some goroutines for the next: an attempt of a receive goes deep, and a new
// goroutine's stack would be grown for each, which took an eighth of the time of a
// small receive.
type crew struct {
	work sync.WaitGroup
	jobs chan func()   // without room: only who waits takes one
	over chan struct{} // closed by end
	once sync.Once
	idle atomic.Int32
}

// maxResting is how many goroutines wait at most: their stacks are 8 KiB or 16 KiB
// each.
const maxResting = 32

func newCrew() *crew { return &crew{jobs: make(chan func()), over: make(chan struct{})} }

// Go runs f on a goroutine of its own.
func (c *crew) Go(f func()) {
	select {
	case c.jobs <- f:
	default:
		c.work.Go(func() { c.stay(f) })
	}
}

func (c *crew) stay(f func()) {
	for f != nil {
		f()
		f = c.next()
	}
}

// next waits for something to do; nil for nothing any more.
func (c *crew) next() (f func()) {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > maxResting {
		return nil
	}
	select {
	case f = <-c.jobs:
	case <-c.over:
	}
	return f
}

// end lets the goroutines go, and waits until all functions have returned.
func (c *crew) end() {
	c.once.Do(func() { close(c.over) })
	c.work.Wait()
}
