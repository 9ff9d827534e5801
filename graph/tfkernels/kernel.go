package tfkernels

import (
	"context"
	"regexp"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/graph"
	"github.com/tryst-rdma/tryst/status"
)

// kernel runs the function of a piece. It implements graph.AsyncKernel: a run has a thread, on which
// TensorFlow's call waits, and never that of the caller.
type kernel struct {
	s *state
	f *function

	mu     sync.Mutex // guards the fields below; taken before context.mu
	in     *context_  // where the function was added last; no reference
	closed bool
}

// Compute implements graph.Kernel.
func (k *kernel) Compute(c *graph.Context) error {
	release, err := k.admit(c.Ctx)
	if err != nil {
		return err
	}
	defer release()
	return k.run(c)
}

// ComputeAsync implements graph.AsyncKernel.
func (k *kernel) ComputeAsync(c *graph.Context, done func(error)) {
	go func() { done(k.Compute(c)) }()
}

// admit waits until the function may run. As many functions that compute run at once as there are
// processors. Functions that may wait for others are not among them: they would keep those out that
// they wait for. Too many of them are an error for the same reason.
func (k *kernel) admit(ctx context.Context) (release func(), err error) {
	if k.f.waits {
		select {
		case k.s.waiting <- struct{}{}:
			return func() { <-k.s.waiting }, nil
		default:
			return nil, status.Errorf(status.ResourceExhausted,
				"%d operations of this session wait already for others, such as dequeues; the limit is %d", len(k.s.waiting), cap(k.s.waiting))
		}
	}
	select {
	case k.s.set.compute <- struct{}{}:
		return func() { <-k.s.set.compute }, nil
	case <-ctx.Done():
		return nil, status.From(ctx.Err()).Derived()
	}
}

// run runs the function once.
func (k *kernel) run(c *graph.Context) error {
	x, err := k.hold()
	if err != nil {
		return err
	}
	defer x.release()
	if k.f.perStep {
		x.inStep(c.Ctx)
	}
	err = x.c.run(c.Ctx, &run{function: k.f.name, owner: x, inputs: c.Inputs, outputs: c.Outputs, allocator: c.Step.Allocator})
	if err != nil {
		return k.explain(c, err)
	}
	return nil
}

// hold returns the present context, with a reference for the caller and with the function in it.
func (k *kernel) hold() (*context_, error) {
	x := k.s.hold()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.in == x {
		return x, nil
	}
	if err := x.use(k.f); err != nil {
		x.release()
		return nil, err
	}
	k.in = x
	return x, nil
}

// Close removes the function when no other kernel uses it. No run is under way any more.
func (k *kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.in == nil {
		return nil
	}
	k.closed = true
	x := k.s.hold()
	defer x.release()
	if x != k.in {
		return nil // a Reset has dropped the function
	}
	return x.unuse(k.f)
}

var (
	functionNode = regexp.MustCompile(`\{\{function_node [^}]*\}\}\s*`)
	// moreNodes matches the nodes that TensorFlow adds to that of an error, since they have not run.
	moreNodes   = regexp.MustCompile(`(\n\t \[\[\{\{node [^}]*\}\}\]\])(?:\n\t \[\[[^\n]*\]\])+`)
	eagerSuffix = regexp.MustCompile(`\s*\[Op:[^\]]*\](?: name: ?\S*)?\s*$`)
)

// explain returns an error of TensorFlow as its worker would: with the node, and without the function.
func (k *kernel) explain(c *graph.Context, err error) error {
	s := status.From(err)
	text := eagerSuffix.ReplaceAllString(functionNode.ReplaceAllString(s.Message(), ""), "")
	text = moreNodes.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, k.f.name, c.Node.Name)
	e := status.New(s.Code(), text)
	if c.Ctx.Err() != nil && s.Code() == status.Cancelled {
		e = e.Derived()
	}
	return graph.NodeError(c.Node.Name, e)
}
