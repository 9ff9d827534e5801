package transport

import (
	"sync"
	"sync/atomic"
)

// crew is a worker pool that grows. Each job has a goroutine to itself, so it may block for
// as long as it likes and start other jobs. Some goroutines are kept for the next jobs: a
// receive goes deep, and a new goroutine has to grow its stack first.
type crew[J any] struct {
	do    func(J)
	jobs  chan J         // unbuffered: a send succeeds only while a goroutine waits for a job
	work  sync.WaitGroup // goroutines
	close sync.Once      // of jobs
	idle  atomic.Int32   // goroutines that wait for a job
}

func newCrew[J any](do func(J)) *crew[J] { return &crew[J]{do: do, jobs: make(chan J)} }

// Go does a job on a goroutine that does nothing else meanwhile.
func (c *crew[J]) Go(j J) {
	select {
	case c.jobs <- j:
	default:
		c.work.Go(func() { c.run(j) })
	}
}

func (c *crew[J]) run(j J) {
	for ok := true; ok; j, ok = c.next() {
		c.do(j)
	}
}

// next waits for a job. It returns false when the goroutine is not needed any more.
func (c *crew[J]) next() (j J, ok bool) {
	defer c.idle.Add(-1)
	if c.idle.Add(1) > maxIdleWorkers {
		return j, false
	}
	j, ok = <-c.jobs
	return j, ok
}

// end waits until all jobs are done and all goroutines have ended. No job may be started
// from then on.
func (c *crew[J]) end() {
	c.close.Do(func() { close(c.jobs) })
	c.work.Wait()
}
