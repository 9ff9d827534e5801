package worker

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// counts are statistics of the steps that have run.
type counts struct {
	steps atomic.Int64
	nanos atomic.Int64
	begun atomic.Uint64

	mu  sync.Mutex // guards ops
	ops map[string]*OpTime
}

// OpTime is how long the kernels of an op took in the steps that were sampled.
type OpTime struct {
	Runs int64
	Time time.Duration
}

// Stats is a snapshot of what a worker holds and has done.
type Stats struct {
	Sessions, Graphs, RunningSteps int
	Steps                          int64         // that have run
	StepTime                       time.Duration // of all of them
}

// Stats returns statistics; all are zero without kernels.
func (w *Worker) Stats() (s Stats) {
	if w.sessions == nil {
		return s
	}
	s.Sessions, s.Graphs, s.RunningSteps = w.sessions.count()
	s.Steps, s.StepTime = w.counts.steps.Load(), time.Duration(w.counts.nanos.Load())
	return s
}

// OpTimes calls f with the time of each op, in no order. One step in sampleSteps counts: reading the
// clock for each kernel would cost more than small kernels take.
func (w *Worker) OpTimes(f func(op string, t OpTime)) {
	w.counts.mu.Lock()
	defer w.counts.mu.Unlock()
	for op, t := range w.counts.ops {
		f(op, *t)
	}
}

// ran counts a step that ends now.
func (w *Worker) ran(began time.Time) {
	w.counts.steps.Add(1)
	w.counts.nanos.Add(int64(time.Since(began)))
}

// sample reports whether the kernels of a step that begins now are counted.
func (c *counts) sample() bool { return c.begun.Add(1)%sampleSteps == 1 }

// calledByName counts for the nodes that call a function by its name. A master chooses these names.
const calledByName = "function"

// countedOp returns the name that a node counts under. These names are those of the kernel set, of the
// executor, and one more, so their number is bounded.
func (w *Worker) countedOp(n *graph.Node) string {
	if graph.Named(w.opts.Kernels, n.Op) {
		return n.Op
	}
	return calledByName
}

// kernel counts a kernel of an op.
func (c *counts) kernel(op string, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ops == nil {
		c.ops = make(map[string]*OpTime)
	}
	t := c.ops[op]
	if t == nil {
		t = new(OpTime)
		c.ops[op] = t
	}
	t.Runs++
	t.Time += took
}
