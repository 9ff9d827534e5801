package graph

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Executor runs one graph, any number of times and at once.
type Executor struct {
	plan    *plan
	workers *Workers
	rets    int         // number of results, of a function
	waits   int64       // kernels that may wait
	state   int64       // how much state a step may hold
	all     []*Executor // this one and those of the functions, if this one is not that of a function
	states  []State     // of the functions

	idle        sync.Pool     // of *propagator, between runs
	idleWorkers sync.Pool     // of *worker
	runs        atomic.Uint32 // number of runs so far
}

// NewExecutor returns the executor of the graph of one device, after it has made the kernels of all
// nodes, and those of the functions that they call. The error names the node.
func NewExecutor(g *Graph, s State) (*Executor, error) {
	b := &builder{state: s, library: g.Library, of: make(map[*body]*Executor), workers: NewWorkers(0)}
	done := false
	defer func() {
		if !done { // an error, or a panic of the set
			_ = closeAll(b.made, b.states) // what led here says more
		}
	}()
	e, err := b.build(g)
	if err != nil {
		return nil, err
	}
	done, e.all, e.states = true, b.made, b.states
	return e, nil
}

// builder makes the executor of a graph and those of its functions.
type builder struct {
	state   State
	library *Library
	workers *Workers
	of      map[*body]*Executor
	made    []*Executor
	states  []State // of the bodies
}

func (b *builder) build(g *Graph) (*Executor, error) {
	p, err := newPlan(g)
	if err != nil {
		return nil, err
	}
	e := &Executor{plan: p, workers: b.workers, state: maxState}
	b.made = append(b.made, e)
	return e, b.fill(e, b.state)
}

// fill makes the kernels of an executor.
func (b *builder) fill(e *Executor, s State) error {
	for _, it := range e.plan.items {
		if err := b.prepare(it, s); err != nil {
			return NodeError(it.node.Name, err)
		}
		if it.async != nil || it.blocks {
			e.waits++
		}
	}
	return nil
}

// function returns the executor of a body. A function that calls itself finds it while it is made.
func (b *builder) function(bd *body) (*Executor, error) {
	if e := b.of[bd]; e != nil {
		return e, nil
	}
	p, err := newPlan(bd.graph)
	if err != nil {
		return nil, err
	}
	e := &Executor{plan: p, workers: b.workers, rets: len(bd.ret)}
	b.of[bd] = e
	b.made = append(b.made, e)
	// As in TensorFlow what a node of a function keeps for itself belongs to the function of this graph.
	s := b.state.NewSession()
	b.states = append(b.states, s)
	return e, b.fill(e, s)
}

// prepare makes the kernel of a node.
func (b *builder) prepare(it *item, s State) (err error) {
	it.cheap = true
	switch n := it.node; it.kind {
	case kindKernel, kindTransfer:
		it.cheap = false
		it.kernel, err = s.NewKernel(n)
	case kindCall, kindIf, kindCase, kindWhile:
		it.kernel, err = b.callKernel(n)
	case kindArg:
		it.kernel = argKernel{int(n.Int("index"))}
	case kindRetval:
		it.kernel = retvalKernel{int(n.Int("index"))}
	default:
		it.kernel = controlKernel(it)
	}
	if err != nil {
		return err
	}
	it.async, _ = it.kernel.(AsyncKernel)
	_, it.blocks = it.kernel.(BlockingKernel)
	it.cheap = it.cheap || it.async != nil || it.blocks
	return nil
}

// callKernel returns the kernel of a node that calls functions.
func (b *builder) callKernel(n *Node) (Kernel, error) {
	var list []callee
	for _, c := range b.library.calls(n) {
		bd := b.library.body(c)
		if bd == nil {
			return nil, status.Errorf(status.Internal, "the function %q was not imported with the graph", c.name)
		}
		e, err := b.function(bd)
		if err != nil {
			return nil, status.From(err).WithPrefix("function " + strconv.Quote(c.name))
		}
		list = append(list, callee{name: c.name, e: e})
	}
	switch kindOf(n.Op) {
	case kindIf:
		return branchKernel{branches: list, pick: pickIf}, nil
	case kindCase:
		return branchKernel{branches: list, pick: pickCase(len(list))}, nil
	case kindWhile:
		return whileKernel{cond: list[0], body: list[1]}, nil
	}
	return callKernel{list[0]}, nil
}

// Close closes the kernels that are an io.Closer. No run may be under way.
func (e *Executor) Close() error { return closeAll(e.all, e.states) }

// closeAll closes the kernels of executors, and then the states that they have.
func closeAll(executors []*Executor, states []State) error {
	var errs []error
	for _, e := range executors {
		errs = append(errs, e.closeKernels())
	}
	for _, s := range states {
		s.Close()
	}
	return errors.Join(errs...)
}

func (e *Executor) closeKernels() error {
	var errs []error
	for _, it := range e.plan.items {
		if c, ok := it.kernel.(io.Closer); ok {
			errs = append(errs, c.Close())
		}
	}
	return errors.Join(errs...)
}

// Run runs the graph once. It returns when no kernel of the run is under way any more, with the
// first error that is not derived. When ctx ends the run ends with Cancelled or DeadlineExceeded,
// which is derived: the reason is known where ctx was ended.
//
// What the nodes of the graph take while they run is reserved in the allocator of the step first (ResourceExhausted beyond its
// limit): a master chooses how many steps of how many nodes wait at once. Iterations that run ahead and calls of functions reserve
// theirs when they begin.
func (e *Executor) Run(ctx context.Context, step *Step) error {
	state, err := tensor.Reserve(step.Allocator, e.plan.frames[0].state+e.waits*stateOfWait)
	if err != nil {
		return status.From(err).WithPrefix(fmt.Sprintf("the state of a step of %d nodes", len(e.plan.items)))
	}
	defer state.Release()
	done := make(chan error, 1)
	r := e.newRun(ctx, step, func(err error) { done <- err })
	defer r.own.release()
	limited := r.limit.tryBegin()
	r.start(limited)
	if limited {
		r.limit.end()
	}
	return <-done
}

// hasNode reports whether a message names a node already.
func hasNode(message string) bool {
	return strings.Contains(message, "[[{{node ") || strings.HasPrefix(message, "{{node ")
}
