package ops_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
	"github.com/tryst-rdma/tryst/transport"
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

// bed is a process with three devices, which are the members of its groups.
type bed struct{ *collective.Collectives }

const devices = 3

// alone has no other tasks.
type alone struct{ transport.WorkerCache }

func (alone) Tasks() []cluster.Task { return nil }

func newBed(t *testing.T) bed {
	var list []*tfpb.DeviceAttributes
	for i := range devices {
		list = append(list, &tfpb.DeviceAttributes{Name: device(i), DeviceType: "CPU", Incarnation: uint64(1 + i)})
	}
	c := collective.New(collective.Options{
		Task: cluster.Task{Job: "worker"}, Devices: func() []*tfpb.DeviceAttributes { return list }, Workers: alone{},
	})
	t.Cleanup(c.Close)
	return bed{c}
}

func device(i int) string {
	return cluster.Device{Task: cluster.Task{Job: "worker"}, Type: "CPU", Index: i}.String()
}

// node is an operation in a graph, whose inputs are constants.
type node struct {
	op     string
	attrs  attrs
	inputs []*tensor.Tensor
}

// evaluate runs a node on a device.
func (b bed) evaluate(t *testing.T, step int64, member int, n node) (*tensor.Tensor, error) {
	t.Helper()
	registry := ops.New()
	if err := registry.AddCollectives(); err != nil {
		return nil, err
	}
	def := &tfpb.NodeDef{Name: "op", Op: n.op, Device: device(member), Attr: map[string]*tfpb.AttrValue{"T": typeAttr(tensor.Float32)}}
	maps.Copy(def.Attr, n.attrs)
	all := &tfpb.GraphDef{Versions: &tfpb.VersionDef{Producer: 1882}}
	for i, in := range n.inputs {
		value, err := tensorproto.ToProto(in)
		if err != nil {
			return nil, err
		}
		input := "in" + string(rune('0'+i))
		all.Node = append(all.Node, &tfpb.NodeDef{Name: input, Op: "Const", Device: device(member), Attr: map[string]*tfpb.AttrValue{
			"dtype": typeAttr(in.DType()), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: value}},
		}})
		def.Input = append(def.Input, input)
	}
	all.Node = append(all.Node, def)
	g, err := graph.Import(all, graph.ImportOptions{Set: registry})
	if err != nil {
		return nil, err
	}
	state, err := registry.NewState()
	if err != nil {
		return nil, err
	}
	defer state.Close()
	i := slices.IndexFunc(g.Nodes, func(n *graph.Node) bool { return n.Name == "op" })
	kernel, err := state.NewKernel(g.Nodes[i])
	if err != nil {
		return nil, err
	}
	c := &graph.Context{
		Ctx: t.Context(), Node: g.Nodes[i], Outputs: make([]graph.Value, 1),
		Step: &graph.Step{ID: step, Allocator: tensor.Heap{}, Collectives: b.Collectives},
	}
	for _, in := range n.inputs {
		c.Inputs = append(c.Inputs, graph.Value{Tensor: in})
	}
	err = kernel.Compute(c)
	return c.Outputs[0].Tensor, err
}

func slice[T tensor.Element](t *testing.T, v ...T) *tensor.Tensor {
	s, err := tensor.FromSlice(tensor.Vector(len(v)), v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// with returns inputs, followed by group_size, group_key and instance_key.
func with(t *testing.T, size, key, instance int32, inputs ...*tensor.Tensor) []*tensor.Tensor {
	for _, v := range []int32{size, key, instance} {
		s, err := tensor.FromSlice(tensor.Shape{}, []int32{v})
		if err != nil {
			t.Fatal(err)
		}
		inputs = append(inputs, s)
	}
	return inputs
}

// TestKernelsOfBothVersions runs each operation among three devices, in two steps each.
func TestKernelsOfBothVersions(t *testing.T) {
	b := newBed(t)
	first := func(instance int64, more attrs) attrs {
		a := attrs{"group_size": intAttr(devices), "group_key": intAttr(5), "instance_key": intAttr(instance)}
		maps.Copy(a, more)
		return a
	}
	in := func(rank int) *tensor.Tensor { return slice(t, float32(rank), 6, float32(-rank)) }
	mean, all, sent := slice[float32](t, 1, 6, -1), slice[float32](t, 0, 6, 0, 1, 6, -1, 2, 6, -2), slice[float32](t, 1, 6, -1)
	reduce := attrs{"merge_op": textAttr("Add"), "final_op": textAttr("Div")}
	for name, c := range map[string]struct {
		want *tensor.Tensor
		node func(rank int) node
	}{
		"reduce": {mean, func(rank int) node {
			a := first(1, reduce)
			a["subdiv_offsets"] = offsetsAttr(0)
			return node{"CollectiveReduce", a, []*tensor.Tensor{in(rank)}}
		}},
		"reduce V2": {mean, func(rank int) node { return node{"CollectiveReduceV2", reduce, with(t, devices, 5, 2, in(rank))} }},
		"gather": {all, func(rank int) node {
			return node{"CollectiveGather", first(3, attrs{"shape": shapeAttr(tensor.Vector(9))}), []*tensor.Tensor{in(rank)}}
		}},
		"gather V2": {all, func(rank int) node { return node{"CollectiveGatherV2", nil, with(t, devices, 5, 4, in(rank))} }},
		"broadcast": {sent, func(rank int) node {
			a := first(5, attrs{"shape": shapeAttr(tensor.Vector(3))})
			if rank == 1 {
				return node{"CollectiveBcastSend", a, []*tensor.Tensor{in(rank)}}
			}
			return node{"CollectiveBcastRecv", a, nil}
		}},
		"broadcast V2": {sent, func(rank int) node {
			if rank == 1 {
				return node{"CollectiveBcastSendV2", nil, with(t, devices, 5, 6, in(rank))}
			}
			return node{"CollectiveBcastRecvV2", nil, append(with(t, devices, 5, 6), slice[int32](t, 3))}
		}},
	} {
		for step := int64(100); step < 102; step++ {
			errs := make([]error, devices)
			var work sync.WaitGroup
			for rank := range devices {
				work.Go(func() {
					out, err := b.evaluate(t, step, rank, c.node(rank))
					if err == nil && !tensor.Equal(out, c.want) {
						t.Errorf("%s, rank %d: %v; want %v", name, rank, out, c.want)
					}
					errs[rank] = err
				})
			}
			work.Wait()
			if err := errors.Join(errs...); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestKernelsRefuse(t *testing.T) {
	one := slice[float32](t, 1)
	alone := func(more attrs) attrs {
		a := attrs{"group_size": intAttr(1), "group_key": intAttr(1), "instance_key": intAttr(1)}
		maps.Copy(a, more)
		return a
	}
	for _, c := range []struct {
		name, text string
		node       node
	}{
		{"a size of 0", "group_size must be positive integer but got 0", node{"CollectiveGatherV2", nil, with(t, 0, 1, 1, one)}},
		{"a vector as the size", "Unexpected dimensions on input group_size", node{
			"CollectiveGatherV2", nil,
			append([]*tensor.Tensor{one, slice[int32](t, 1)}, with(t, 1, 1, 1)[1:]...),
		}},
		{"a negative shape", "", node{"CollectiveBcastRecvV2", nil, append(with(t, 1, 1, 1), slice[int32](t, -1))}},
		{"an offset", "subdiv_offsets has 5", node{"CollectiveReduce", alone(attrs{
			"merge_op": textAttr("Add"), "final_op": textAttr("Id"), "subdiv_offsets": offsetsAttr(5),
		}), []*tensor.Tensor{one}}},
		{"an operation that is none", "merge_op", node{"CollectiveReduce", alone(attrs{
			"merge_op": textAttr("Sub"), "final_op": textAttr("Id"), "subdiv_offsets": offsetsAttr(0),
		}), []*tensor.Tensor{one}}},
		{"another shape than declared", "does not match shape of input", node{"CollectiveBcastSend", alone(attrs{"shape": shapeAttr(tensor.Vector(2))}), []*tensor.Tensor{one}}},
	} {
		_, err := newBed(t).evaluate(t, 3, 0, c.node)
		if err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v; want a text with %q", c.name, err, c.text)
		}
	}
	if _, err := (bed{}).evaluate(t, 3, 0, node{"CollectiveGatherV2", nil, with(t, 1, 1, 1, one)}); status.CodeOf(err) != status.Internal {
		t.Errorf("a step without collectives: %v", err)
	}
}

// TestTimeoutOfANode: the attribute timeout_seconds ends the wait for the other members.
func TestTimeoutOfANode(t *testing.T) {
	_, err := newBed(t).evaluate(t, 9, 0, node{
		"CollectiveGatherV2", attrs{"timeout_seconds": {Value: &tfpb.AttrValue_F{F: 0.001}}}, with(t, 2, 1, 1, slice[float32](t, 1)),
	})
	if status.CodeOf(err) != status.DeadlineExceeded || !strings.Contains(err.Error(), "timed out waiting for other workers") {
		t.Error(err)
	}
}
