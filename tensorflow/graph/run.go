package graph

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// One run of an executor:
//
//  1. A goroutine takes a task: it takes snapshots of references, and calls the kernel.
//  2. It releases the inputs, and passes the outputs to the propagator, under the lock of the run.
//  3. Of the tasks that become ready it runs the cheap ones itself, one after another. The others
//     go to Workers; if there is nothing cheap the goroutine keeps one of them, if it is a worker.
//     After its turn a worker lets those go first that wait in Workers.
//  4. A kernel that waits goes on with a goroutine of its own at step 2, unless it is done at once.
//
// The run ends when no task is left. After an error no further kernel begins.
type run struct {
	e      *Executor
	step   *Step
	caller context.Context
	ctx    context.Context // that of caller, and ends with the first error
	stop   context.CancelCauseFunc
	unhook func() bool // ends the watch over caller
	done   func(error)
	limit  *Workers
	began  time.Time
	args   []Value // of a function; they belong to the caller
	rets   []Value // of a function; a dead one has no value
	depth  int     // number of calls around this one
	held   *held   // of the first of these calls, or own
	own    held
	sample bool // measure the cheap kernels too

	tasks  atomic.Int64 // that are ready or under way
	failed atomic.Bool

	mu  sync.Mutex // guards the fields below; taken last
	p   *propagator
	err error
}

// sampleRuns is how often the time of cheap kernels is measured: in one run of so many.
const sampleRuns = 16

func (e *Executor) newRun(ctx context.Context, step *Step, done func(error)) *run {
	r := &run{e: e, step: step, caller: ctx, done: done, limit: step.Workers, sample: e.runs.Add(1)%sampleRuns == 0}
	if r.limit == nil {
		r.limit = e.workers
	}
	r.own.limit, r.own.from, r.held = e.state, step.Allocator, &r.own
	r.ctx, r.stop = context.WithCancelCause(ctx)
	if step.Observe != nil {
		r.began = time.Now()
	}
	r.p, _ = e.idle.Get().(*propagator)
	if r.p == nil {
		r.p = newPropagator(e.plan)
	}
	return r
}

// start runs what is ready on the caller's goroutine, and returns when the rest is elsewhere. limited
// says that the goroutine counts in Workers.
func (r *run) start(limited bool) {
	r.tasks.Store(1) // this goroutine
	r.unhook = context.AfterFunc(r.caller, func() { r.fail(cancelled(r.caller)) })
	if r.caller.Err() != nil {
		r.fail(cancelled(r.caller))
	}
	w := newWorker(r)
	w.limited = limited
	r.mu.Lock()
	r.p.held = r.held
	r.p.start()
	w.take()
	r.mu.Unlock()
	r.tasks.Add(int64(len(w.ready)))
	w.spread()
	w.loop()
	r.leave()
}

// cancelled returns the error of a run whose context has ended.
func cancelled(ctx context.Context) error {
	code, text := status.Cancelled, "Step was cancelled"
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		code, text = status.DeadlineExceeded, "Timed out waiting for the step"
	}
	if cause := context.Cause(ctx); cause.Error() != ctx.Err().Error() {
		text += ": " + status.From(cause).Message()
	}
	return status.New(code, text).Derived()
}

// fail ends the run with an error. The first one stays, unless it is the consequence of another.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.caller.Err() != nil && (status.IsDerived(err) || consequence(err)) {
		err = cancelled(r.caller) // a kernel may notice before the run does
	}
	switch {
	case r.err == nil:
		r.err = err
	case status.IsDerived(r.err) && !status.IsDerived(err) && !consequence(err):
		r.err = err
	}
	r.failed.Store(true)
	r.stop(r.err)
}

// consequence reports whether an error of a kernel, after the run has failed, is one of a kernel
// that was stopped for that.
func consequence(err error) bool {
	c := status.CodeOf(err)
	return c == status.Cancelled || c == status.Aborted || c == status.DeadlineExceeded
}

// leave ends a task. The last one ends the run.
func (r *run) leave() {
	if r.tasks.Add(-1) > 0 {
		return
	}
	r.unhook()
	r.mu.Lock()
	r.p.abandon()
	dropped, err := r.p.dropped, r.err
	r.p.dropped = nil
	p := r.p
	r.mu.Unlock()
	for _, v := range dropped {
		v.Release()
	}
	r.stop(nil)
	r.e.idle.Put(p)
	r.done(err)
}
