package graph

import (
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A function runs as a run of its own, with an executor that all its callers share. It takes part in the
// step of the caller and ends with it.

// callee is one function that a node calls.
type callee struct {
	name string
	e    *Executor
}

// begin calls the function with args, which stay the caller's, and does not wait. done gets the
// results, which belong to it.
func (f callee) begin(c *Context, args []Value, done func([]Value, error)) {
	if c.run.depth == maxCallDepth {
		done(nil, status.Errorf(status.ResourceExhausted, "function %q: the call is the %dth within calls, and at most %d are allowed: a recursion must end", f.name, maxCallDepth+1, maxCallDepth))
		return
	}
	h, state := c.run.held, stateOfCall+f.e.plan.frames[0].state+f.e.waits*stateOfWait
	if !h.take(state) {
		done(nil, status.Errorf(status.ResourceExhausted, "function %q: with this call the calls and iterations under way in the step take more than %d bytes, which is the limit, or than the process has left: a recursion must call itself less often, and a loop needs smaller parallel_iterations", f.name, h.limit))
		return
	}
	var r *run
	r = f.e.newRun(c.Ctx, c.Step, func(err error) {
		h.give(state)
		if err == nil {
			for i, v := range r.rets {
				if v.Dead {
					err = status.Errorf(status.InvalidArgument, "function %q: Retval[%d] does not have value", f.name, i)
				}
			}
		}
		if err != nil {
			releaseAll(r.rets)
			r.rets = nil
		}
		done(r.rets, err)
	})
	r.args, r.depth, r.held = args, c.run.depth+1, h
	r.rets = make([]Value, f.e.rets)
	for i := range r.rets {
		r.rets[i].Dead = true
	}
	r.limit.run(func() { r.start(true) })
}

// callKernel is a call of a function.
type callKernel struct{ f callee }

func (k callKernel) Compute(*Context) error { return errAsyncOnly() }

func (k callKernel) ComputeAsync(c *Context, done func(error)) {
	k.f.begin(c, c.Inputs, finishCall(c, done))
}

// finishCall returns a callback that makes the results of a function the outputs of the node.
func finishCall(c *Context, done func(error)) func([]Value, error) {
	return func(rets []Value, err error) {
		copy(c.Outputs, rets)
		done(err)
	}
}

func errAsyncOnly() error {
	return status.New(status.Internal, "the kernel may wait, so it has no Compute")
}

// branchKernel is If and Case: the first input chooses the function, which gets the others.
type branchKernel struct {
	branches []callee
	pick     func(t *tensor.Tensor) (int, error)
}

func (k branchKernel) Compute(*Context) error { return errAsyncOnly() }

func (k branchKernel) ComputeAsync(c *Context, done func(error)) {
	if c.Input(0) == nil {
		done(status.New(status.InvalidArgument, "the condition is a resource or variant, want a tensor"))
		return
	}
	i, err := k.pick(c.Input(0))
	if err != nil {
		done(err)
		return
	}
	k.branches[i].begin(c, c.Inputs[1:], finishCall(c, done))
}

// pickIf returns 0, that of then, for a value that is true.
func pickIf(t *tensor.Tensor) (int, error) {
	yes, err := truth(t)
	if yes {
		return 0, err
	}
	return 1, err
}

// pickCase returns the index, and that of the last branch for all that there are none of.
func pickCase(n int) func(*tensor.Tensor) (int, error) {
	return func(t *tensor.Tensor) (int, error) {
		v, err := tensor.Values[int32](t)
		switch {
		case err != nil:
			return 0, err
		case len(v) != 1:
			return 0, status.Errorf(status.InvalidArgument, "branch_index must be a scalar, but it has shape %v", t.Shape())
		case v[0] < 0 || int(v[0]) >= n:
			return n - 1, nil
		}
		return int(v[0]), nil
	}
}

// truth is the value of a condition, with TensorFlow's rule: a scalar is true unless it is zero or an empty
// text, and another tensor unless it has no elements.
func truth(t *tensor.Tensor) (bool, error) {
	if t.Shape().Rank() > 0 {
		return t.Shape().Elements() > 0, nil
	}
	switch t.DType() {
	case tensor.String:
		return t.Elements()[0] != "", nil
	case tensor.Int32, tensor.Int64, tensor.Int16, tensor.Int8, tensor.Uint8, tensor.Bool:
		return anyByte(t.Bytes()), nil
	case tensor.Float32, tensor.Float64:
		b := slices.Clone(t.Bytes())
		b[len(b)-1] &= 0x7f // the sign: −0 is zero
		return anyByte(b), nil
	}
	return false, status.Errorf(status.InvalidArgument, "a condition has the type %v, which has no truth", t.DType())
}

func anyByte(b []byte) bool {
	return slices.ContainsFunc(b, func(x byte) bool { return x != 0 })
}

// whileKernel is While: it calls body with its own results while cond returns true.
type whileKernel struct{ cond, body callee }

func (k whileKernel) Compute(*Context) error { return errAsyncOnly() }

func (k whileKernel) ComputeAsync(c *Context, done func(error)) {
	l := &whileLoop{whileKernel: k, c: c, done: done, values: make([]Value, len(c.Inputs))}
	for i, v := range c.Inputs {
		l.values[i] = v.Retain()
	}
	l.next()
}

// whileLoop is one run of a While. One function of it is under way at a time.
type whileLoop struct {
	whileKernel
	c      *Context
	done   func(error)
	values []Value // of the loop variables; they belong to the loop
}

// next calls the condition. After the end of the step the call fails.
func (l *whileLoop) next() { l.cond.begin(l.c, l.values, l.decide) }

func (l *whileLoop) decide(rets []Value, err error) {
	defer releaseAll(rets)
	more := false
	if err == nil {
		if rets[0].Tensor == nil {
			err = status.Errorf(status.InvalidArgument, "function %q is a condition and returns a resource or variant", l.cond.name)
		} else {
			more, err = truth(rets[0].Tensor)
		}
	}
	switch {
	case err != nil:
		l.end(err)
	case !more:
		copy(l.c.Outputs, l.values)
		l.values = nil
		l.end(nil)
	default:
		l.body.begin(l.c, l.values, func(rets []Value, err error) {
			if err != nil {
				l.end(err)
				return
			}
			releaseAll(l.values)
			l.values = rets
			l.next()
		})
	}
}

func (l *whileLoop) end(err error) {
	releaseAll(l.values)
	l.done(err)
}

// argKernel is _Arg.
type argKernel struct{ index int }

func (k argKernel) Compute(c *Context) error {
	if k.index >= len(c.run.args) {
		return status.Errorf(status.InvalidArgument, "the run has %d arguments, and the node is that of number %d", len(c.run.args), k.index)
	}
	c.Outputs[0] = c.run.args[k.index].Retain()
	return nil
}

// retvalKernel is _Retval.
type retvalKernel struct{ index int }

func (k retvalKernel) Compute(c *Context) error {
	if k.index >= len(c.run.rets) {
		return status.Errorf(status.InvalidArgument, "the run has %d results, and the node is that of number %d", len(c.run.rets), k.index)
	}
	c.run.rets[k.index] = c.Inputs[0]
	c.Inputs[0] = Value{}
	return nil
}
