package collective

import (
	"errors"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// attrs are attributes by name.
type attrs map[string]*tfpb.AttrValue

func intAttr(i int64) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_I{I: i}}
}

func textAttr(s string) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}}
}

func shapeAttr(s tensor.Shape) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: tensorproto.ShapeToProto(s)}}
}

func typeAttr(d tensor.DType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tensorproto.DTypeToProto(d)}}
}

func offsetsAttr(o ...int64) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{I: o}}}
}

// evaluate runs one operation on a process, whose inputs are constants of its graph.
func (p *process) evaluate(t *testing.T, step int64, op string, a attrs, inputs ...*tensor.Tensor) (*tensor.Tensor, error) {
	t.Helper()
	registry := ops.New()
	if err := Register(registry); err != nil {
		return nil, err
	}
	name := p.devices[0].GetName()
	node := &tfpb.NodeDef{Name: "op", Op: op, Device: name, Attr: map[string]*tfpb.AttrValue{"T": typeAttr(tensor.Float32)}}
	maps.Copy(node.Attr, a)
	def := &tfpb.GraphDef{Versions: &tfpb.VersionDef{Producer: 1882}}
	for i, in := range inputs {
		value, err := tensorproto.ToProto(in)
		if err != nil {
			return nil, err
		}
		input := "in" + string(rune('0'+i))
		def.Node = append(def.Node, &tfpb.NodeDef{Name: input, Op: "Const", Device: name, Attr: map[string]*tfpb.AttrValue{
			"dtype": typeAttr(in.DType()), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: value}},
		}})
		node.Input = append(node.Input, input)
	}
	def.Node = append(def.Node, node)
	g, err := graph.Import(def, graph.ImportOptions{Set: registry})
	if err != nil {
		return nil, err
	}
	state, err := registry.NewState()
	if err != nil {
		return nil, err
	}
	defer state.Close()
	i := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool { return n.Name == "op" })
	made, err := state.NewKernel(g.Nodes[i])
	if err != nil {
		return nil, err
	}
	c := &graph.Context{
		Ctx: t.Context(), Node: g.Nodes[i], Outputs: make([]graph.Value, 1),
		Step: &graph.Step{ID: step, Allocator: tensor.Heap{}, Collectives: p.Collectives},
	}
	for _, in := range inputs {
		c.Inputs = append(c.Inputs, graph.Value{Tensor: in})
	}
	if k, ok := made.(*kernel); ok && step == groupStep && p.plain { // TensorFlow's eager runtime has kernels there
		return k.run(c, p.Step(step))
	}
	err = made.Compute(c)
	return c.Outputs[0].Tensor, err
}

func numbers(t *testing.T, size, key, instance int32) []*tensor.Tensor {
	var scalars []*tensor.Tensor
	for _, v := range []int32{size, key, instance} {
		s, err := tensor.FromSlice(tensor.Shape{}, []int32{v})
		if err != nil {
			t.Fatal(err)
		}
		scalars = append(scalars, s)
	}
	return scalars
}

// TestKernelsOfBothVersions runs each operation among three processes, in two steps each.
func TestKernelsOfBothVersions(t *testing.T) {
	n := newNetwork(t, 1, 1, 1)
	n.process(1).plain = true // a TensorFlow worker, for the others
	first := attrs{"group_size": intAttr(3), "group_key": intAttr(5)}
	with := func(instance int64, more attrs) attrs {
		a := attrs{"instance_key": intAttr(instance)}
		for _, m := range []attrs{first, more} {
			maps.Copy(a, m)
		}
		return a
	}
	in := func(rank int) *tensor.Tensor { return slice(t, float32(rank), 6, float32(-rank)) }
	mean, all, sent := []float32{1, 6, -1}, []float32{0, 6, 0, 1, 6, -1, 2, 6, -2}, []float32{1, 6, -1}
	shape := slice(t, int32(3))
	for name, c := range map[string]struct {
		want []float32
		run  func(step int64, rank int) (*tensor.Tensor, error)
	}{
		"reduce": {mean, func(step int64, rank int) (*tensor.Tensor, error) {
			return n.process(rank).evaluate(t, step, "CollectiveReduce", with(1, attrs{"merge_op": textAttr("Add"), "final_op": textAttr("Div"), "subdiv_offsets": offsetsAttr(0)}), in(rank))
		}},
		"reduce V2": {mean, func(step int64, rank int) (*tensor.Tensor, error) {
			return n.process(rank).evaluate(t, step, "CollectiveReduceV2", attrs{"merge_op": textAttr("Add"), "final_op": textAttr("Div")}, append([]*tensor.Tensor{in(rank)}, numbers(t, 3, 5, 2)...)...)
		}},
		"gather": {all, func(step int64, rank int) (*tensor.Tensor, error) {
			return n.process(rank).evaluate(t, step, "CollectiveGather", with(3, attrs{"shape": shapeAttr(tensor.Vector(9))}), in(rank))
		}},
		"gather V2": {all, func(step int64, rank int) (*tensor.Tensor, error) {
			return n.process(rank).evaluate(t, step, "CollectiveGatherV2", nil, append([]*tensor.Tensor{in(rank)}, numbers(t, 3, 5, 4)...)...)
		}},
		"broadcast": {sent, func(step int64, rank int) (*tensor.Tensor, error) {
			a := with(5, attrs{"shape": shapeAttr(tensor.Vector(3))})
			if rank == 1 {
				return n.process(rank).evaluate(t, step, "CollectiveBcastSend", a, in(rank))
			}
			return n.process(rank).evaluate(t, step, "CollectiveBcastRecv", a)
		}},
		"broadcast V2": {sent, func(step int64, rank int) (*tensor.Tensor, error) {
			if rank == 1 {
				return n.process(rank).evaluate(t, step, "CollectiveBcastSendV2", nil, append([]*tensor.Tensor{in(rank)}, numbers(t, 3, 5, 6)...)...)
			}
			return n.process(rank).evaluate(t, step, "CollectiveBcastRecvV2", nil, append(numbers(t, 3, 5, 6), shape)...)
		}},
	} {
		for step := int64(100); step < 102; step++ {
			errs := each(3, func(rank int) error {
				out, err := c.run(step, rank)
				if err == nil {
					wantElements(t, name, out, c.want...)
				}
				return err
			})
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestMistakesInGraphs: each error names what is wrong, and ends the operation at all members.
func TestMistakesInGraphs(t *testing.T) {
	reduce := attrs{"merge_op": textAttr("Add"), "final_op": textAttr("Id")}
	v2 := func(p *process, step int64, in *tensor.Tensor, size, key, instance int32) (*tensor.Tensor, error) {
		return p.evaluate(t, step, "CollectiveReduceV2", reduce, append([]*tensor.Tensor{in}, numbers(t, size, key, instance)...)...)
	}
	matrix, err := tensor.FromSlice(mustShape(t, 1, 4), []float32{1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, text string
		run        func(p *process, rank int) (*tensor.Tensor, error)
	}{
		{"shape", "Shape mismatch in the collective instance 1. Op at device", func(p *process, rank int) (*tensor.Tensor, error) {
			if rank == 1 {
				return v2(p, 7, matrix, 2, 1, 1)
			}
			return v2(p, 7, slice[float32](t, 1, 2, 3, 4), 2, 1, 1)
		}},
		{"kind", "use an instance_key for one operation only", func(p *process, rank int) (*tensor.Tensor, error) {
			if rank == 1 {
				return p.evaluate(t, 7, "CollectiveGatherV2", nil, append([]*tensor.Tensor{slice[float32](t, 1)}, numbers(t, 2, 1, 1)...)...)
			}
			return v2(p, 7, slice[float32](t, 1), 2, 1, 1)
		}},
		{"no source", "found no source for broadcast", func(p *process, _ int) (*tensor.Tensor, error) {
			return p.evaluate(t, 7, "CollectiveBcastRecvV2", nil, append(numbers(t, 2, 1, 1), slice[int32](t, 1))...)
		}},
		{"two sources", "already has source", func(p *process, _ int) (*tensor.Tensor, error) {
			return p.evaluate(t, 7, "CollectiveBcastSendV2", nil, append([]*tensor.Tensor{slice[float32](t, 1)}, numbers(t, 2, 1, 1)...)...)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := newNetwork(t, 1, 1)
			errs := each(2, func(rank int) error {
				_, err := c.run(n.process(rank), rank)
				return err
			})
			found := false
			for rank, err := range errs {
				if err == nil {
					t.Errorf("rank %d got a result", rank)
				}
				found = found || err != nil && strings.Contains(err.Error(), c.text)
			}
			if !found {
				t.Errorf("no error has %q: %v", c.text, errs)
			}
		})
	}
}

func mustShape(t *testing.T, dims ...int64) tensor.Shape {
	s, err := tensor.NewShape(dims...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestKernelsRefuse(t *testing.T) {
	p := newNetwork(t, 1).process(0)
	one := slice[float32](t, 1)
	for _, c := range []struct {
		name, text string
		op         string
		a          attrs
		inputs     []*tensor.Tensor
	}{
		{"a size of 0", "group_size must be positive integer but got 0", "CollectiveGatherV2", nil, append([]*tensor.Tensor{one}, numbers(t, 0, 1, 1)...)},
		{"a vector as the size", "Unexpected dimensions on input group_size", "CollectiveGatherV2", nil,
			append([]*tensor.Tensor{one, slice[int32](t, 1)}, numbers(t, 1, 1, 1)[1:]...)},
		{"a scalar", "input should have rank > 0", "CollectiveGatherV2", nil, append([]*tensor.Tensor{scalar(t)}, numbers(t, 1, 1, 1)...)},
		{"a negative shape", "", "CollectiveBcastRecvV2", nil, append(numbers(t, 1, 1, 1), slice[int32](t, -1))},
		{"an offset", "subdiv_offsets has 5", "CollectiveReduce", attrs{
			"group_size": intAttr(1), "group_key": intAttr(1), "instance_key": intAttr(1),
			"merge_op": textAttr("Add"), "final_op": textAttr("Id"), "subdiv_offsets": offsetsAttr(5),
		}, []*tensor.Tensor{one}},
		{"another shape than declared", "does not match shape of input", "CollectiveBcastSend", attrs{
			"group_size": intAttr(1), "group_key": intAttr(1), "instance_key": intAttr(1), "shape": shapeAttr(tensor.Vector(2)),
		}, []*tensor.Tensor{one}},
	} {
		_, err := p.evaluate(t, 3, c.op, c.a, c.inputs...)
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want a text with %q", c.name, err, c.text)
		}
		p.EndStep(3)
		p.ended = endedList{}
	}
	if _, err := (&process{devices: p.devices}).evaluate(t, 3, "CollectiveGatherV2", nil, append([]*tensor.Tensor{one}, numbers(t, 1, 1, 1)...)...); err == nil {
		t.Error("a step without collectives is accepted")
	}
}

func scalar(t *testing.T) *tensor.Tensor {
	s, err := tensor.FromSlice(tensor.Shape{}, []float32{1})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestATimeoutEndsAKernel(t *testing.T) {
	n := newNetwork(t, 1, 1)
	_, err := n.process(0).evaluate(t, 9, "CollectiveGatherV2", attrs{"timeout_seconds": {Value: &tfpb.AttrValue_F{F: 0.001}}},
		append([]*tensor.Tensor{slice[float32](t, 1)}, numbers(t, 2, 1, 1)...)...)
	if status.CodeOf(err) != status.DeadlineExceeded || !strings.Contains(err.Error(), timedOutWaiting) {
		t.Error(err)
	}
}

// TestCloseWaitsForKernels: when Close returns no kernel is under way.
func TestCloseWaitsForKernels(t *testing.T) {
	p := newNetwork(t, 1).process(0)
	var ended atomic.Bool
	began := make(chan struct{})
	k := &kernel{first: &params{}, compute: func(r *run) (*tensor.Tensor, error) {
		close(began)
		<-r.s.ctx.Done()
		for range 1000 {
			runtime.Gosched()
		}
		return nil, errShutdown()
	}}
	c := &graph.Context{Ctx: t.Context(), Step: &graph.Step{ID: 1, Collectives: p.Collectives}, Node: &graph.Node{Name: "op"}}
	k.ComputeAsync(c, func(error) { ended.Store(true) })
	<-began
	p.Close()
	if !ended.Load() {
		t.Error("a kernel is still under way")
	}
	var after error
	k.ComputeAsync(c, func(err error) { after = err })
	if status.CodeOf(after) != status.Aborted {
		t.Errorf("a kernel after Close: %v", after)
	}
}

// TestAPanicIsTheErrorOfTheOperation: the graph comes from a stranger, and a bug must not end the process.
func TestAPanicIsTheErrorOfTheOperation(t *testing.T) {
	n := newNetwork(t, 1, 1)
	p := n.process(0)
	none := []int{}
	k := &kernel{compute: func(*run) (*tensor.Tensor, error) { none[len(none)]++; return nil, nil }, first: &params{}}
	s := p.Step(4)
	done := make(chan error, 1)
	k.ComputeAsync(&graph.Context{Ctx: t.Context(), Node: &graph.Node{Op: "CollectiveReduce"}, Step: &graph.Step{ID: 4, Collectives: p.Collectives}}, func(err error) { done <- err })
	if err := <-done; status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "index out of range") || s.ctx.Err() == nil {
		t.Errorf("a kernel: %v; the step: %v", err, s.ctx.Err())
	}
	x := p.Step(5).newExchange(t.Context(), group(1), 0, "1", func(error) {})
	x.do(func() error { none[len(none)]++; return nil })
	if err := x.finish(); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "TestAPanic") {
		t.Errorf("a part of an operation: %v", err)
	}
}
