package library

import (
	"context"
	"regexp"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// kernel runs the function of a subgraph. It implements graph.BlockingKernel: TensorFlow's call waits on a thread of
// the run's.
type kernel struct {
	s *state
	f *function

	mu     sync.Mutex // guards the fields below; taken before state.mu and context.mu
	now    *version   // what was added last; has no reference to the context
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

// Blocks implements graph.BlockingKernel.
func (*kernel) Blocks() {}

// admit waits until the function may run. As many functions that compute run at once as computing
// says. Functions that may wait for others are not among them: they would keep those out that
// they wait for. Too many of them are an error for the same reason.
func (k *kernel) admit(ctx context.Context) (release func(), err error) {
	if k.f.waits {
		return k.admitWaiting()
	}
	select {
	case k.s.set.compute <- struct{}{}:
		return func() { <-k.s.set.compute }, nil
	case <-ctx.Done():
		return nil, status.From(ctx.Err()).Derived()
	}
}

// admitWaiting is admit for a function that may wait.
func (k *kernel) admitWaiting() (release func(), err error) {
	session, all := k.s.waiting, k.s.set.waiting
	select {
	case session <- struct{}{}:
	default:
		return nil, status.Errorf(status.ResourceExhausted,
			"%d operations of this session wait already for others, such as dequeues; the limit is %d", len(session), cap(session))
	}
	select {
	case all <- struct{}{}:
		return func() { <-all; <-session }, nil
	default:
		<-session
		return nil, status.Errorf(status.ResourceExhausted,
			"%d operations of all sessions wait already for others, such as dequeues; the limit is %d", len(all), cap(all))
	}
}

// run runs the function once.
func (k *kernel) run(c *graph.Context) error {
	v, err := k.hold()
	if err != nil {
		return err
	}
	defer k.put(v)
	if k.f.perStep {
		v.x.inStep(c.Ctx)
	}
	defer k.s.takeTurn(v.x, v.f)()
	err = v.x.c.run(c.Ctx, &run{function: v.f.name, owner: v.x, inputs: c.Inputs, outputs: c.Outputs, allocator: c.Step.Allocator})
	if err != nil {
		return k.explain(c, v.f, err)
	}
	return nil
}

// version is the function as it was added to a context, with the containers of some generations.
type version struct {
	x    *countedContext
	f    *function
	at   *generations // for which f is right; guarded by kernel.mu
	uses int          // the kernel, and the runs; guarded by kernel.mu
}

// hold returns the version for the present context and generations, after it has added its function. The
// caller gives it back to put, and has a reference to the context until then.
func (k *kernel) hold() (*version, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	x, g := k.s.hold()
	v := k.now
	if v == nil || v.x != x || v.at != g {
		var err error
		if v, err = k.renewLocked(x, g); err != nil {
			x.release()
			return nil, err
		}
	}
	v.uses++
	return v, nil
}

// renewLocked makes the version for a context and generations the present one.
func (k *kernel) renewLocked(x *countedContext, g *generations) (*version, error) {
	f, err := k.f.at(k.s.set, g)
	if err != nil {
		return nil, err
	}
	old := k.now
	if old != nil && old.x == x && old.f.name == f.name {
		old.at = g
		return old, nil
	}
	if err := x.use(f); err != nil {
		return nil, err
	}
	k.s.keep(x, f)
	k.now = &version{x: x, f: f, at: g, uses: 1}
	if old != nil {
		old.uses--
		if old.uses == 0 && old.x == x { // another context had a Reset, and took its functions along
			_ = x.unuse(old.f) // what is left goes with the context
		}
	}
	return k.now, nil
}

// put ends a use of a version. The last one removes the function, when the version is not the present
// one any more.
func (k *kernel) put(v *version) {
	k.mu.Lock()
	v.uses--
	last := v.uses == 0
	k.mu.Unlock()
	if last {
		_ = v.x.unuse(v.f) // the run has its result; what is left goes with the context
	}
	v.x.release()
}

// Close removes the function when no other kernel uses it. No run is under way any more.
func (k *kernel) Close() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.closed || k.now == nil {
		return nil
	}
	k.closed = true
	x, _ := k.s.hold()
	defer x.release()
	if x != k.now.x {
		return nil // a Reset has dropped the function
	}
	return x.unuse(k.now.f)
}

var (
	functionNode = regexp.MustCompile(`\{\{function_node [^}]*\}\}\s*`)
	// moreNodes matches the nodes that TensorFlow adds to that of an error, since they have not run.
	moreNodes   = regexp.MustCompile(`(\n\t \[\[\{\{node [^}]*\}\}\]\])(?:\n\t \[\[[^\n]*\]\])+`)
	eagerSuffix = regexp.MustCompile(`\s*\[Op:[^\]]*\](?: name: ?\S*)?\s*$`)
)

// explain returns an error of TensorFlow as its worker would: with the node, and without the function.
func (k *kernel) explain(c *graph.Context, f *function, err error) error {
	s := status.From(err)
	text := eagerSuffix.ReplaceAllString(functionNode.ReplaceAllString(s.Message(), ""), "")
	text = moreNodes.ReplaceAllString(text, "$1")
	text = strings.ReplaceAll(text, f.name, c.Node.Name)
	text = f.originals(text)
	e := status.New(s.Code(), text)
	if c.Ctx.Err() != nil && s.Code() == status.Cancelled {
		e = e.Derived()
	}
	return graph.NodeError(c.Node.Name, e)
}
