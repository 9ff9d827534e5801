package worker

import (
	"sync/atomic"
	"time"
)

// counts are statistics of the steps that have run.
type counts struct {
	steps atomic.Int64
	nanos atomic.Int64
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

// ran counts a step that ends now.
func (w *Worker) ran(began time.Time) {
	w.counts.steps.Add(1)
	w.counts.nanos.Add(int64(time.Since(began)))
}
