package delivery

import (
	"sync"
	"sync/atomic"
)

// pool runs jobs on goroutines. Each job has a goroutine to itself, so it may block for as
// long as it likes and start other jobs. Some goroutines are kept for the next jobs: a
// receive goes deep, and a new goroutine has to grow its stack first.
type pool struct {
	jobs chan func()   // unbuffered: a send succeeds only while a goroutine waits for a job
	quit chan struct{} // closed by close
	work sync.WaitGroup
	once sync.Once    // of close
	idle atomic.Int32 // goroutines that wait for a job
}

func newPool() *pool { return &pool{jobs: make(chan func()), quit: make(chan struct{})} }

// Go runs a job on a goroutine that does nothing else meanwhile.
func (p *pool) Go(job func()) {
	select {
	case p.jobs <- job:
	default:
		p.work.Go(func() {
			for ok := true; ok; job, ok = p.next() {
				job()
			}
		})
	}
}

// next waits for a job. It returns false when the goroutine is not needed any more.
func (p *pool) next() (job func(), ok bool) {
	defer p.idle.Add(-1)
	if p.idle.Add(1) > maxIdleWorkers {
		return nil, false
	}
	select {
	case job = <-p.jobs:
		return job, true
	case <-p.quit:
		return nil, false
	}
}

// close waits until all jobs are done and all goroutines have ended. From then on only jobs
// that run may start others.
func (p *pool) close() {
	p.once.Do(func() { close(p.quit) })
	p.work.Wait()
}
