package ops

import (
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func (b *bench) stack(most int32, d tensor.DType) graph.Value {
	b.t.Helper()
	return b.runNamed("s", "StackV2", attrs{"elem_type": d}, scalar(most))[0]
}

func (b *bench) pop(s graph.Value, d tensor.DType) graph.Value {
	b.t.Helper()
	return b.run("StackPopV2", attrs{"elem_type": d}, s)[0]
}

func TestAStackGivesTheLastFirst(t *testing.T) {
	b := newBench(t)
	s := b.stack(-1, tensor.Float32)
	b.want(b.run("StackPushV2", nil, s, vec[float32](1, 2))[0], "float[2]: 1 2")
	b.run("StackPushV2", nil, s, scalar[float32](3))
	b.want(b.pop(s, tensor.Float32), "float[]: 3")
	b.want(b.pop(s, tensor.Float32), "float[2]: 1 2")
}

// TestWrongUsesOfAStackAreErrors with TensorFlow's texts. Each stack of a process has a number there.
func TestWrongUsesOfAStackAreErrors(t *testing.T) {
	b := newBench(t)
	pop := attrs{"elem_type": tensor.Float32}
	wantError := func(err error, code status.Code, text string) {
		t.Helper()
		if status.CodeOf(err) != code || status.From(err).Message() != text {
			t.Errorf("got %v, want %s", err, text)
		}
	}
	s := b.stack(1, tensor.Float32)
	wantError(b.fails("StackPopV2", pop, s), status.InvalidArgument, "Stack[s_0] is empty when calling Pop().")
	wantError(b.fails("StackPushV2", nil, s, scalar[int32](1)), status.InvalidArgument, "Must have type 1 but got 3")
	b.run("StackPushV2", nil, s, scalar[float32](1))
	wantError(b.fails("StackPushV2", nil, s, scalar[float32](1)), status.InvalidArgument, "Stack[s_0] overflowed its max_size (1)")
	wantError(b.fails("StackPopV2", attrs{"elem_type": tensor.Int32}, s), status.Internal,
		"Output 0 of type float does not match declared output type int32 for node {{node StackPopV2}}")
	b.run("StackCloseV2", nil, s)
	b.run("StackCloseV2", nil, s)
	wantError(b.fails("StackPushV2", nil, s, scalar[float32](1)), status.InvalidArgument, "Stack[s_0] has already been closed.")
	wantError(b.fails("StackPopV2", pop, s), status.InvalidArgument, "Stack[s_0] has already been closed.")
	wantError(b.fails("StackV2", attrs{"elem_type": tensor.Float32}, vec[int32](1)), status.InvalidArgument, "Stack size must be a scalar, but had shape: [1]")
	wantError(b.fails("StackPushV2", nil, b.queue(nil), scalar[float32](1)), status.InvalidArgument, "handle is not a stack")
}

// TestWhatAStackHoldsIsCounted: a constant that is pushed again and again takes little, but not nothing.
func TestWhatAStackHoldsIsCounted(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(1 << 20)
	s, value := b.stack(-1, tensor.Int32), scalar[int32](7)
	push := func() error {
		outs, err := b.try(b.node("push", "StackPushV2", nil, s, value), s, value)
		outs[0].Release()
		return err
	}
	n := 0
	for n <= 1<<20/partBytes && push() == nil {
		n++
	}
	if err := push(); status.CodeOf(err) != status.ResourceExhausted || n < 1<<20/partBytes/2 {
		t.Errorf("push %d: %v", n, err)
	}
	for range n - 1 {
		b.pop(s, tensor.Int32).Release()
	}
	if held := pool.Stats().InUse; held > 2*stepBlock {
		t.Errorf("one element takes %d bytes", held)
	}
	s.Release()
	if held := pool.Stats().InUse; held != 0 {
		t.Errorf("%d bytes are counted when nobody has the stack", held)
	}
}

// graphOf returns a graph of nodes whose inputs are the first outputs of the nodes that edges name.
func graphOf(nodes []*graph.Node, edges map[string][]string, after map[string]string) *graph.Graph {
	named := func(name string) *graph.Node {
		return nodes[slices.IndexFunc(nodes, func(n *graph.Node) bool { return n.Name == name })]
	}
	for i, n := range nodes {
		n.ID = i
	}
	for to, list := range edges {
		for i, from := range list {
			source, index := from, 0
			if name, ok := strings.CutSuffix(from, ":1"); ok {
				source, index = name, 1
			}
			n, target := named(source), named(to)
			n.Out = append(n.Out, graph.Edge{From: index, To: target, Input: i})
			for len(target.In) <= i {
				target.In = append(target.In, graph.Output{})
			}
			target.In[i] = graph.Output{Node: n, Index: index}
		}
	}
	for to, from := range after {
		n, target := named(from), named(to)
		n.Out = append(n.Out, graph.Edge{From: graph.ControlSlot, To: target, Input: graph.ControlSlot})
		target.ControlIn = append(target.ControlIn, n)
	}
	return &graph.Graph{Nodes: nodes}
}

// TestObjectsOfAStepEndWithIt: a step that closes neither its stack nor its array leaves nothing, whether it succeeds or not, and
// the next step begins with empty ones.
func TestObjectsOfAStepEndWithIt(t *testing.T) {
	b := newBench(t)
	pool := b.pooled(1 << 20)
	stackHandle, array := graph.Value{Opaque: &stack{}}, graph.Value{Opaque: &tensorArray{}}
	one, flow := scalar[int32](1), scalar[float32](0)
	for _, fails := range []bool{false, true} {
		nodes := []*graph.Node{
			b.node("size", "Const", attrs{"dtype": tensor.Int32, "value": one.Tensor}),
			b.node("s", "StackV2", attrs{"elem_type": tensor.Int32}, one),
			b.node("push", "StackPushV2", nil, stackHandle, one),
			b.node("again", "Identity", nil, one),
			b.node("a", "TensorArrayV3", attrs{"dtype": tensor.Int32}, one),
			b.node("index", "Const", attrs{"dtype": tensor.Int32, "value": scalar[int32](0).Tensor}),
			b.node("write", "TensorArrayWriteV3", nil, array, one, one, flow),
			b.node("grad", "TensorArrayGradV3", attrs{"source": "g"}, array, flow),
		}
		edges := map[string][]string{
			"s": {"size"}, "push": {"s", "size"}, "again": {"push"}, "a": {"size"}, "write": {"a", "index", "size", "a:1"}, "grad": {"a", "write"},
		}
		after := map[string]string{}
		if fails {
			nodes = append(nodes, b.node("over", "StackPushV2", nil, stackHandle, one))
			edges["over"] = []string{"s", "push"}
			after["over"] = "grad"
		}
		e, err := graph.NewExecutor(graphOf(nodes, edges, after), b.state)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			err := e.Run(t.Context(), b.step)
			if fails != (err != nil) || fails && !strings.Contains(err.Error(), "overflowed its max_size (1)") {
				t.Errorf("got %v", err)
			}
			if held := pool.Stats().InUse; held != 0 {
				t.Errorf("%d bytes are counted after the step", held)
			}
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}
