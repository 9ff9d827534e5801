package graph

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
)

// Executor runs one graph, any number of times and at once.
type Executor struct {
	plan    *plan
	workers *Workers
	rets    int // number of _Retval nodes, of a function

	idle        sync.Pool     // of *propagator, between runs
	idleWorkers sync.Pool     // of *worker
	runs        atomic.Uint32 // number of runs so far
}

// NewExecutor returns the executor of the graph of one device, after it has made the kernels of all
// nodes. The error names the node.
func NewExecutor(g *Graph, s State) (*Executor, error) {
	p, err := newPlan(g)
	if err != nil {
		return nil, err
	}
	e := &Executor{plan: p, workers: NewWorkers(0)}
	for _, it := range p.items {
		if err := e.prepare(it, s); err != nil {
			e.Close()
			return nil, NodeError(it.node.Name, err)
		}
	}
	return e, nil
}

// prepare makes the kernel of a node.
func (e *Executor) prepare(it *item, s State) error {
	switch it.kind {
	case kindKernel, kindTransfer:
		k, err := s.NewKernel(it.node)
		if err != nil {
			return err
		}
		it.kernel = k
	case kindCall, kindIf, kindCase, kindWhile, kindArg, kindRetval:
		return status.Errorf(status.Unimplemented, "functions are not supported")
	default:
		it.kernel, it.cheap = controlKernel(it), true
	}
	it.async, _ = it.kernel.(AsyncKernel)
	it.cheap = it.cheap || it.async != nil
	return nil
}

// Close closes the kernels that are an io.Closer. No run may be under way.
func (e *Executor) Close() error {
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
// which is derived: whoever has ended ctx knows why.
func (e *Executor) Run(ctx context.Context, step *Step) error {
	done := make(chan error, 1)
	r := e.newRun(ctx, step, func(err error) { done <- err })
	r.start()
	return <-done
}

// hasNode reports whether a message names a node already.
func hasNode(message string) bool {
	return strings.Contains(message, "[[{{node ") || strings.HasPrefix(message, "{{node ")
}
