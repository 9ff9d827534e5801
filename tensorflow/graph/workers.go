package graph

import (
	"runtime"
	"sync"
)

// Workers bounds the number of kernels that compute at once. Kernels that have been cheap so far
// run where their inputs were made and do not count; neither do those that wait (AsyncKernel, BlockingKernel). The
// steps of a process share one. It is safe for concurrent use.
type Workers struct {
	limit int

	mu      sync.Mutex // guards the fields below
	running int
	waiting []func() // first come, first served
}

// NewWorkers returns Workers with a limit; 0 or less means GOMAXPROCS.
func NewWorkers(limit int) *Workers {
	if limit <= 0 {
		limit = runtime.GOMAXPROCS(0)
	}
	return &Workers{limit: limit}
}

// run calls f on a goroutine of its own, now or when the limit allows it. f must not wait for
// another call. A run of an executor waits for all functions that it has passed.
func (w *Workers) run(f func()) {
	w.mu.Lock()
	if w.running == w.limit {
		w.waiting = append(w.waiting, f)
		w.mu.Unlock()
		return
	}
	w.running++
	w.mu.Unlock()
	go w.work(f)
}

// work calls f and then those that wait.
func (w *Workers) work(f func()) {
	for f != nil {
		f()
		f = w.next()
	}
}

// wanted reports whether functions wait for a place.
func (w *Workers) wanted() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.waiting) > 0
}

// tryBegin lets the caller count as a worker, if the limit allows it. It then calls end.
func (w *Workers) tryBegin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running == w.limit {
		return false
	}
	w.running++
	return true
}

// end ends what tryBegin began.
func (w *Workers) end() {
	if f := w.next(); f != nil {
		go w.work(f)
	}
}

// next returns a function that waits. Without one the worker has ended.
func (w *Workers) next() func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.waiting) == 0 {
		w.running--
		return nil
	}
	f := w.waiting[0]
	w.waiting[0] = nil
	w.waiting = w.waiting[1:]
	return f
}
