package graph

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// worker is what one goroutine of a run keeps between tasks.
type worker struct {
	r       *run
	limited bool          // it counts in Workers
	apart   bool          // its goroutine runs nothing but the queue, and does not count
	used    time.Duration // of the turn: what the tasks took, where a cheap one counts as cheapKernel
	queue   []task        // to run on this goroutine
	next    int           // index in queue
	ready   []task
	dropped []Value
	c       Context
	out     []Value
}

func newWorker(r *run) *worker {
	w, ok := r.e.idleWorkers.Get().(*worker)
	if !ok {
		w = new(worker)
	}
	w.r = r
	return w
}

// spawn runs a task on another goroutine that counts in Workers.
func (r *run) spawn(t task) {
	r.limit.run(func() {
		w := newWorker(r)
		w.limited = true
		w.queue = append(w.queue, t)
		w.loop()
	})
}

// loop runs the tasks in the queue, and those that become ready meanwhile. After its turn the worker
// gives its place to those that wait, and goes on when it gets one again. The caller must not use
// it afterwards.
func (w *worker) loop() {
	for w.next < len(w.queue) {
		if w.used += cheapKernel; w.used > turn {
			w.used = 0
			if w.limited && w.r.limit.wanted() {
				w.r.limit.run(w.loop)
				return
			}
		}
		t := w.queue[w.next]
		w.next++
		if w.next == len(w.queue) {
			w.queue, w.next = w.queue[:0], 0
		}
		w.run(t)
	}
	idle := &w.r.e.idleWorkers
	*w = worker{queue: w.queue[:0], ready: w.ready[:0], dropped: w.dropped[:0], out: w.out[:0]}
	idle.Put(w)
}

// take takes over what the propagator has produced; the lock of the run is held.
func (w *worker) take() {
	p := w.r.p
	w.ready = append(w.ready[:0], p.ready...)
	p.ready = p.ready[:0]
	w.dropped = append(w.dropped[:0], p.dropped...)
	clear(p.dropped)
	p.dropped = p.dropped[:0]
}

// spread decides where the tasks in ready run.
func (w *worker) spread() {
	var at int64
	if w.r.step.Observe != nil {
		at = int64(time.Since(w.r.began))
	}
	keep := -1 // index of a task that is not cheap
	for i := range w.ready {
		t := &w.ready[i]
		t.at = at
		switch {
		case t.dead || t.item.cheap || t.item.cost.cheap():
			w.queue = append(w.queue, *t)
		case !w.limited:
			w.r.spawn(*t)
		case keep >= 0:
			w.r.spawn(w.ready[keep])
			keep = i
		default:
			keep = i
		}
	}
	switch {
	case keep < 0:
	case w.next == len(w.queue):
		w.queue = append(w.queue, w.ready[keep])
	default:
		w.r.spawn(w.ready[keep])
	}
}

// run runs a task.
func (w *worker) run(t task) {
	switch {
	case w.r.failed.Load():
		w.r.leave()
		return
	case t.dead && t.item.kind != kindTransfer:
		releaseAll(t.inputs())
		w.finish(t, nil)
		return
	}
	if t.item.refs {
		if err := resolve(t); err != nil {
			w.fail(t, err)
			return
		}
	}
	if t.item.async != nil {
		w.runAsync(t)
		return
	}
	if t.item.blocks && (!w.apart || w.next < len(w.queue)) {
		w.r.apart(func(w *worker) { w.compute(t) })
		return
	}
	w.compute(t)
}

// apart begins with f on a goroutine of its own that does not count in Workers, and runs what becomes ready.
func (r *run) apart(f func(*worker)) {
	go func() {
		w := newWorker(r)
		w.apart = true
		f(w)
		w.loop()
	}()
}

// compute runs a task on this goroutine.
func (w *worker) compute(t task) {
	n := len(t.item.node.OutTypes)
	if cap(w.out) < n {
		w.out = make([]Value, n)
	}
	w.out = w.out[:n]
	w.r.context(&w.c, t, w.out)
	if !w.r.sample && t.item.cost.cheap() && w.r.step.Observe == nil {
		w.complete(t, &w.c, compute(t.item.kernel, &w.c), time.Time{})
		return
	}
	start := time.Now()
	err := compute(t.item.kernel, &w.c)
	took := time.Since(start)
	t.item.cost.add(took)
	w.used += took
	w.complete(t, &w.c, err, start)
}

// context fills in the context of a task.
func (r *run) context(c *Context, t task, out []Value) {
	*c = Context{run: r, Ctx: r.ctx, Step: r.step, Node: t.item.node, FrameIter: t.frameIter(), InDead: t.dead, Inputs: t.inputs(), Outputs: out}
}

// compute calls a kernel. A panic is a bug, but here it is the error of the step: the graph comes from a
// stranger, who chooses shapes and indices, and a wrong index in one kernel must not end the steps
// of all sessions. A variable that the kernel was changing may be changed in part.
func compute(k Kernel, c *Context) (err error) {
	defer func() {
		c.endScratch()
		if p := recover(); p != nil {
			err = Recovered("the kernel of op "+c.Node.Op, p)
		}
	}()
	return k.Compute(c)
}

// Recovered returns the error for a panic of what, with the place where it happened. p is the result of
// recover. The deferred function itself calls it.
func Recovered(what string, p any) error {
	var pcs [32]uintptr
	frames := runtime.CallersFrames(pcs[:runtime.Callers(3, pcs[:])])
	for {
		f, more := frames.Next()
		if !more || !strings.HasPrefix(f.Function, "runtime.") {
			return status.Errorf(status.Internal, "%s panicked, which is a bug: %v (%s:%d)", what, p, f.Function, f.Line)
		}
	}
}

// asyncTask is a task whose kernel may wait.
type asyncTask struct {
	t      task
	r      *run
	c      Context
	start  time.Time
	err    error
	called atomic.Bool  // done was called
	ends   atomic.Int32 // of ComputeAsync and done; the second one goes on
}

func (w *worker) runAsync(t task) {
	a := &asyncTask{t: t, r: w.r}
	if w.r.step.Observe != nil {
		a.start = time.Now()
	}
	w.r.context(&a.c, t, make([]Value, len(t.item.node.OutTypes)))
	a.begin()
	if a.ends.Add(1) == 2 {
		w.complete(t, &a.c, a.err, a.start)
	}
}

func (a *asyncTask) begin() {
	defer func() {
		if p := recover(); p != nil {
			a.done(Recovered("the kernel of op "+a.t.item.node.Op, p))
		}
	}()
	a.t.item.async.ComputeAsync(&a.c, a.done)
}

// done is the callback of the kernel. It may run inside another kernel, or under locks of the rendezvous's
// caller, so what follows runs on a goroutine of the run.
func (a *asyncTask) done(err error) {
	if a.called.Swap(true) {
		return // a bug of the kernel; the first call counts
	}
	a.err = err
	if a.ends.Add(1) == 2 {
		a.r.apart(func(w *worker) { w.complete(a.t, &a.c, a.err, a.start) })
	}
}

// complete ends the kernel of a task.
func (w *worker) complete(t task, c *Context, err error, start time.Time) {
	c.endScratch() // of a kernel that has waited
	if err == nil {
		err = checkOutputs(t.item, c.Outputs)
	}
	if err != nil {
		err = NodeError(t.item.node.Name, err)
	}
	if observe := w.r.step.Observe; observe != nil {
		observe(NodeRun{Node: t.item.node, Scheduled: w.r.began.Add(time.Duration(t.at)), Start: start, End: time.Now(), Outputs: c.Outputs, Err: err})
	}
	releaseAll(t.inputs())
	out := c.Outputs
	if err != nil || t.dead {
		releaseAll(out)
		out = nil
	}
	if err != nil {
		w.fail(t, err)
		return
	}
	w.finish(t, out)
	clear(out)
}

func (w *worker) fail(t task, err error) {
	w.r.fail(NodeError(t.item.node.Name, err))
	w.r.leave()
}

// finish propagates the end of a task.
func (w *worker) finish(t task, out []Value) {
	r := w.r
	r.mu.Lock()
	if r.failed.Load() {
		r.mu.Unlock()
		releaseAll(out)
		r.leave()
		return
	}
	r.p.finish(t, out)
	w.take()
	r.mu.Unlock()
	for i := range w.dropped {
		w.dropped[i].Release()
		w.dropped[i] = Value{}
	}
	if len(w.ready) == 0 {
		r.leave()
		return
	}
	r.tasks.Add(int64(len(w.ready) - 1))
	w.spread()
}

func releaseAll(values []Value) {
	for i := range values {
		values[i].Release()
		values[i] = Value{}
	}
}

// resolve takes a snapshot of each variable that feeds an input which is no reference, and which the node
// does not hand on.
func resolve(t task) error {
	n, in := t.item.node, t.inputs()
	for i, v := range in {
		if v.Var == nil {
			continue
		}
		snapshot := v.Var.Snapshot()
		switch {
		case !n.InTypes[i].IsRef() && snapshot != nil && i >= t.item.handed:
			in[i] = Value{Tensor: snapshot}
		case snapshot != nil:
			snapshot.Release()
		case !n.InTypes[i].IsRef() || !t.item.unset:
			return status.Errorf(status.FailedPrecondition, "Attempting to use uninitialized value %s", inputName(n.In[i]))
		}
	}
	return nil
}

// inputName returns an output as inputs name it: "node" or "node:1".
func inputName(o Output) string {
	if o.Index == 0 {
		return o.Node.Name
	}
	return fmt.Sprintf("%s:%d", o.Node.Name, o.Index)
}

// checkOutputs compares the outputs of a kernel with the types of the node.
func checkOutputs(it *item, out []Value) error {
	n := it.node
	if len(out) != len(n.OutTypes) {
		return status.Errorf(status.Internal, "the kernel of op %s has %d outputs, and the op %d", n.Op, len(out), len(n.OutTypes))
	}
	for i := range out {
		v, want := &out[i], n.OutTypes[i]
		switch {
		case v.Dead:
		case (want.IsRef() || it.handed > 0) && v.Var != nil && v.Var.DType == want.Base():
		case !want.IsRef() && v.Tensor != nil && v.Tensor.DType() == want:
		case (want == tensor.Resource || want == tensor.Variant) && v.Opaque != nil:
		case v.Tensor != nil:
			return status.Errorf(status.Internal, "the kernel of op %s set output %d to a tensor of type %v, and the node declares %v", n.Op, i, v.Tensor.DType(), want)
		case v.Var != nil:
			return status.Errorf(status.Internal, "the kernel of op %s set output %d to a variable of type %v, and the node declares %v", n.Op, i, v.Var.DType, want)
		default:
			return status.Errorf(status.Internal, "Missing %d-th output from {{node %s}}: the kernel of op %s did not set it to a value of type %v", i, n.Name, n.Op, want)
		}
	}
	return nil
}
