package ops

import (
	"context"
	"sync"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops/internal/waiting"
)

func accumulatorOps() []entry {
	const (
		source = `dtype: number; shape: shape; container: string = ""; shared_name: string = ""; ` +
			`reduction_type: {"MEAN", "SUM"} = "MEAN"; stateful`
		number = `; dtype: number`
	)
	list := []entry{
		{`SparseConditionalAccumulator() -> (handle: Ref(string)); ` + source, newAccumulator},
		{`SparseAccumulatorApplyGradient(handle: Ref(string), local_step: int64, gradient_indices: int64, gradient_values: dtype, ` +
			`gradient_shape: int64)` + number + `; has_known_shape: bool`, newApplyGradient},
		{`SparseAccumulatorTakeGradient(handle: Ref(string), num_required: int32) -> (indices: int64, values: dtype, shape: int64)` +
			number, newTakeGradient},
	}
	for _, version := range []struct{ prefix, handle, flag string }{{"", "Ref(string)", ""}, {"Resource", "resource", "; stateful"}} {
		handle := `(handle: ` + version.handle
		list = append(list,
			entry{version.prefix + `ConditionalAccumulator() -> (handle: ` + version.handle + `); ` + source, newAccumulator},
			entry{version.prefix + `AccumulatorApplyGradient` + handle + `, local_step: int64, gradient: dtype)` + number + version.flag, newApplyGradient},
			entry{version.prefix + `AccumulatorTakeGradient` + handle + `, num_required: int32) -> (average: dtype)` + number + version.flag, newTakeGradient},
			entry{version.prefix + `AccumulatorNumAccumulated` + handle + `) -> (num_accumulated: int32)` + version.flag, always(numAccumulated)},
			entry{version.prefix + `AccumulatorSetGlobalStep` + handle + `, new_global_step: int64)` + version.flag, always(setGlobalStep)},
		)
	}
	return list
}

// accumulatorKind is the kind of accumulators in a container, as TensorFlow's error texts have it.
const accumulatorKind = "N10tensorflow26ConditionalAccumulatorBaseE"

// accumulator is a conditional accumulator: it adds gradients of the present step, drops those of earlier ones, and
// gives their mean or sum when there are enough.
type accumulator struct {
	object
	dtype    tensor.DType
	shape    partialShape
	mean     bool
	overhead overhead // of the attempts that wait

	mu      sync.Mutex // guards the fields below
	a       waiting.Accumulator
	sum     gradientSum
	dropped bool
}

// gradientSum is the sum of gradients. It is not safe for concurrent use.
type gradientSum interface {
	// add adds the gradient of an apply kernel to count others, or begins anew.
	add(c *graph.Context, count int) error
	// output sets the outputs of a take kernel to the sum of count gradients, or the mean.
	output(c *graph.Context, count int, mean bool) error
	// inputs and outputs are the types of a gradient in the nodes of apply and take.
	inputs() []tensor.DType
	outputs() []tensor.DType
	release()
}

func newAccumulator(n *graph.Node, s *State) (graph.Kernel, error) {
	dtype, shape := n.Type("dtype"), partialOf(n.Attr("shape").GetShape())
	switch dtype {
	case tensor.Float16, tensor.Float32, tensor.Float64:
	default:
		return nil, noType("dtype", dtype)
	}
	k := newObject(n, s, accumulatorKind)
	k.make = func() (holder, error) {
		a := &accumulator{dtype: dtype, shape: shape, mean: n.Text("reduction_type") == "MEAN"}
		if n.Op == "SparseConditionalAccumulator" {
			a.sum = &sparseSum{of: a}
		} else {
			a.sum = &denseSum{of: a}
		}
		return a, nil
	}
	k.check = func(holder) error { return nil } // as in TensorFlow, each finds the first one
	return k, nil
}

// drop implements resource.
func (a *accumulator) drop() {
	a.mu.Lock()
	a.dropped = true
	ended := a.a.Drop(errObjectGone("Accumulator", a.key.name))
	a.sum.release()
	a.mu.Unlock()
	finishTakes(ended)
	a.held.Release()
}

func finishTakes(ended []*waiting.Take) {
	for _, t := range ended {
		t.Done()
	}
}

// accumulatorAt returns the accumulator of input 0.
func accumulatorAt(c *graph.Context) (*accumulator, error) {
	return objectAt[*accumulator](c, "an accumulator")
}

func newApplyGradient(n *graph.Node, _ *State) (graph.Kernel, error) {
	return graph.KernelFunc(func(c *graph.Context) error {
		a, err := accumulatorAt(c)
		if err != nil {
			return err
		}
		if err := checkSignature(n, a.inputs(n, append([]tensor.DType{tensor.Int64}, a.sum.inputs()...)...), nil); err != nil {
			return err
		}
		step, err := stepOf[int64](c, "local_step")
		if err != nil {
			return err
		}
		ended, err := a.apply(c, step)
		finishTakes(ended)
		return err
	}), nil
}

// stepOf returns input 1, a scalar, which texts call name.
func stepOf[T tensor.Element](c *graph.Context, name string) (T, error) {
	v, err := inputOf[T](c, 1)
	if err != nil {
		return *new(T), err
	}
	if c.Input(1).Shape().Rank() != 0 {
		return *new(T), invalid("Argument %s must be scalar, but had bad shape %s", name, c.Input(1).Shape())
	}
	return v[0], nil
}

func (a *accumulator) apply(c *graph.Context, step int64) ([]*waiting.Take, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dropped {
		return nil, errObjectGone("Accumulator", a.key.name)
	}
	return a.a.Apply(step, func(count int) error { return a.sum.add(c, count) })
}

func newTakeGradient(n *graph.Node, _ *State) (graph.Kernel, error) {
	return waitingKernel(func(c *graph.Context, done func(error)) {
		if err := beginTake(c, done); err != nil {
			done(err)
		}
	}), nil
}

// beginTake begins to take the gradients; an error ends it.
func beginTake(c *graph.Context, done func(error)) error {
	a, err := accumulatorAt(c)
	if err != nil {
		return err
	}
	if err := checkSignature(c.Node, a.inputs(c.Node, tensor.Int32), a.sum.outputs()); err != nil {
		return err
	}
	required, err := stepOf[int32](c, "num_required")
	if err != nil {
		return err
	}
	if required <= 0 {
		return invalid("Argument num_required must be positive, but was %d", required)
	}
	t := &waiting.Take{Required: int(required), Output: func(count int) (err error) {
		defer recovered("the output of an accumulator", &err) // the lock is held, and the goroutine may be another kernel's
		return a.sum.output(c, count, a.mean)
	}}
	t.Done = func() { done(t.Err) }
	finishTakes(a.begin(c, t))
	return nil
}

// begin adds an attempt of a kernel. Its Done is called when it has ended; the end of the kernel's step cancels it.
func (a *accumulator) begin(c *graph.Context, t *waiting.Take) []*waiting.Take {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dropped {
		t.Err = errObjectGone("Accumulator", a.key.name)
		return []*waiting.Take{t}
	}
	ended := a.a.Take(t)
	if t.Ended() {
		return ended
	}
	if err := a.overhead.add(c.Step.Allocator, waitBytes); err != nil {
		ended = append(ended, a.a.Cancel(t)...)
		t.Err = err
		return ended
	}
	done := t.Done
	stop := context.AfterFunc(c.Ctx, func() { finishTakes(a.cancel(t)) })
	t.Done = func() {
		stop()
		a.overhead.give(waitBytes)
		done()
	}
	return ended
}

func (a *accumulator) cancel(t *waiting.Take) []*waiting.Take {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.a.Cancel(t)
}

func numAccumulated(c *graph.Context) error {
	a, err := accumulatorAt(c)
	if err != nil {
		return err
	}
	a.mu.Lock()
	count := a.a.Count()
	a.mu.Unlock()
	t, err := scalarTensor(c, int32(count)) //nolint:gosec // TensorFlow has int32
	if err == nil {
		c.Set(0, t)
	}
	return err
}

func setGlobalStep(c *graph.Context) error {
	a, err := accumulatorAt(c)
	if err != nil {
		return err
	}
	step, err := stepOf[int64](c, "num_required") // TensorFlow's text
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.a.SetStep(step)
	return nil
}
