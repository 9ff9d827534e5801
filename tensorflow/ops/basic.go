package ops

import (
	"strings"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func basicOps() []entry {
	forward := always(forwardAll)
	return []entry{
		{`NoOp()`, always(func(*graph.Context) error { return nil })},
		{`ControlTrigger()`, always(func(*graph.Context) error { return nil })},
		{`Const() -> (output: dtype); value: tensor; dtype: type`, newConst},
		{`HostConst() -> (output: dtype); value: tensor; dtype: type`, newConst},
		{`Identity(input: T) -> (output: T); T: type`, forward},
		{`IdentityN(input: T) -> (output: T); T: list(type) >= 1`, forward},
		{`Snapshot(input: T) -> (output: T); T: type`, forward},
		{`StopGradient(input: T) -> (output: T); T: type`, forward},
		{`PreventGradient(input: T) -> (output: T); T: type; message: string = ""`, forward},
		{`PlaceholderWithDefault(input: dtype) -> (output: dtype); dtype: type; shape: shape`, forward},
		{`RefIdentity(input: Ref(T)) -> (output: Ref(T)); T: type; uninitialized`, forward},

		{`Switch(data: T, pred: bool) -> (output_false: T, output_true: T); T: type`, always(switchKernel)},
		{`RefSwitch(data: Ref(T), pred: bool) -> (output_false: Ref(T), output_true: Ref(T)); T: type; uninitialized`,
			always(switchKernel)},
		{`Merge(inputs: N*T) -> (output: T, value_index: int32); T: type; N: int >= 1`, always(mergeKernel)},
		{`RefMerge(inputs: N*Ref(T)) -> (output: Ref(T), value_index: int32); T: type; N: int >= 1`, always(mergeKernel)},
		{`Enter(data: T) -> (output: T); T: type; frame_name: string; is_constant: bool = false; ` +
			`parallel_iterations: int = 10`, forward},
		{`RefEnter(data: Ref(T)) -> (output: Ref(T)); T: type; frame_name: string; is_constant: bool = false; ` +
			`parallel_iterations: int = 10`, forward},
		{`Exit(data: T) -> (output: T); T: type`, forward},
		{`RefExit(data: Ref(T)) -> (output: Ref(T)); T: type`, forward},
		{`NextIteration(data: T) -> (output: T); T: type`, forward},
		{`RefNextIteration(data: Ref(T)) -> (output: Ref(T)); T: type`, forward},
		{`LoopCond(input: bool) -> (output: bool)`, forward},

		{`Assert(condition: bool, data: T); T: list(type) >= 1; summarize: int = 3; stateful`, always(assertKernel)},
	}
}

// always returns the NewFunc of a kernel that is the same for every node.
func always(f graph.KernelFunc) NewFunc {
	return func(*graph.Node, *State) (graph.Kernel, error) { return f, nil }
}

func forwardAll(c *graph.Context) error {
	for i := range c.Outputs {
		c.Forward(i, i)
	}
	return nil
}

// constKernel keeps the tensor of a Const node. The garbage collector frees it: a graph has no end
// that a kernel could see.
type constKernel struct{ t *tensor.Tensor }

// Compute implements graph.Kernel. The kernel's own reference keeps a later kernel from writing to
// the constant.
func (k *constKernel) Compute(c *graph.Context) error {
	c.Set(0, k.t.Retain())
	return nil
}

// newConst makes the kernel of a Const node. A value that is repeated takes much more memory than its
// message. Nothing would count that memory while the graph is registered, so such a constant is made
// in each step, whose allocator counts it.
func newConst(n *graph.Node, _ *State) (graph.Kernel, error) {
	want, p := n.Type("dtype"), n.Attr("value").GetTensor()
	if !movable(want) {
		return nil, noType("dtype", want)
	}
	if d := tensor.DType(p.GetDtype()); d != want {
		return nil, invalid("the attribute value has the type %s, and dtype is %s", d, want)
	}
	shape, err := tensorproto.ShapeFromProto(p.GetTensorShape())
	if err != nil {
		return nil, status.Errorf(status.CodeOf(err), "the attribute value: %w", err)
	}
	if shape.Elements() > keptConstant && shape.Elements() > int64(proto.Size(p)) {
		return repeatedConstant(p), nil
	}
	t, err := tensorproto.FromProto(p, tensor.Heap{})
	if err != nil {
		return nil, status.Errorf(status.CodeOf(err), "the attribute value: %w", err)
	}
	return &constKernel{t}, nil
}

func repeatedConstant(p *tfpb.TensorProto) graph.Kernel {
	return graph.KernelFunc(func(c *graph.Context) error {
		t, err := tensorproto.Decoder{Allocator: c.Step.Allocator, MaxExpand: -1}.FromProto(p)
		if err == nil {
			c.Set(0, t)
		}
		return err
	})
}

// switchKernel sends the data to the output that pred selects. The other one is dead.
func switchKernel(c *graph.Context) error {
	pred, err := scalarOf[bool](c, 1)
	if err != nil {
		return err
	}
	taken := 0
	if pred {
		taken = 1
	}
	c.Forward(taken, 0)
	c.Outputs[1-taken] = graph.Value{Dead: true}
	return nil
}

// mergeKernel forwards the input that is alive.
func mergeKernel(c *graph.Context) error {
	for i, in := range c.Inputs {
		if in.Dead || (in.Tensor == nil && in.Var == nil && in.Opaque == nil) {
			continue
		}
		index, err := tensor.FromSlice(tensor.Shape{}, []int32{int32(i)})
		if err != nil {
			return err
		}
		c.Forward(0, i)
		c.Set(1, index)
		return nil
	}
	for i := range c.Outputs {
		c.Outputs[i] = graph.Value{Dead: true}
	}
	return nil
}

// assertKernel fails when the condition is false, with TensorFlow's text and the first elements of
// the data.
func assertKernel(c *graph.Context) error {
	ok, err := scalarOf[bool](c, 0)
	if err != nil || ok {
		return err
	}
	var texts []string
	for i := 1; i < len(c.Inputs); i++ {
		texts = append(texts, "["+summary(c.Input(i), int(c.Node.Int("summarize")))+"]")
	}
	return status.New(status.InvalidArgument, "assertion failed: "+strings.Join(texts, " "))
}
