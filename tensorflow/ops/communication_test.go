package ops

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func edge() attrs {
	return attrs{
		"tensor_name": "edge_1_x", "send_device": "/job:ps/replica:0/task:0/device:CPU:0", "send_device_incarnation": -1,
		"recv_device": "/job:worker/replica:0/task:0/device:CPU:0", "tensor_type": tensor.Float32,
	}
}

func TestASentValueIsReceivedUnderTensorFlowsKey(t *testing.T) {
	b := newBench(t)
	b.run("_Send", edge(), vec[float32](1, 2))
	key, err := rendezvous.ParseKey("/job:ps/replica:0/task:0/device:CPU:0;ffffffffffffffff;" +
		"/job:worker/replica:0/task:0/device:CPU:0;edge_1_x;0:0")
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.step.Rendezvous.Recv(t.Context(), key, rendezvous.Args{})
	if err != nil {
		t.Fatal(err)
	}
	b.want(graph.Value{Tensor: v.Tensor}, "float[2]: 1 2")
	if err := b.step.Rendezvous.Send(key, rendezvous.Args{}, v.Tensor, false); err != nil {
		t.Fatal(err)
	}
	b.want(b.run("_Recv", edge())[0], "float[2]: 1 2")
}

func TestADeadValueIsSentAsDead(t *testing.T) {
	b := newBench(t)
	n := b.node("send", "_Send", edge(), vec[float32](1))
	k, err := b.state.NewKernel(n)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.compute(k, n, graph.Value{Dead: true}); err != nil {
		t.Fatal(err)
	}
	if v := b.run("_Recv", edge())[0]; !v.Dead {
		t.Error("the value is not dead")
	}
}

func TestAReceiveOfAnotherTypeIsInternal(t *testing.T) {
	b := newBench(t)
	b.run("_Send", edge(), vec[int32](1))
	if err := b.fails("_Recv", edge()); status.CodeOf(err) != status.Internal {
		t.Error(err)
	}
}

// TestResourcesStayOnTheirDevice: an edge of resources or variants between devices is refused when the graph
// is registered, on both sides, with what to do.
func TestResourcesStayOnTheirDevice(t *testing.T) {
	b := newBench(t)
	for _, op := range []string{"_Send", "_HostSend", "_Recv", "_HostRecv"} {
		for _, d := range []tensor.DType{tensor.Resource, tensor.Variant} {
			a := edge()
			a["tensor_type"] = d
			n := b.node("edge", op, a, vec[float32](1))
			n.Def.Attr["T"] = attrValue(t, d)
			_, err := b.state.NewKernel(n)
			if status.CodeOf(err) != status.Unimplemented || !strings.Contains(err.Error(), "would go from /job:ps/replica:0/task:0/device:CPU:0 to /job:worker/replica:0/task:0/device:CPU:0") {
				t.Errorf("%s of %v: %v", op, d, err)
			}
		}
	}
}

func TestALoopIterationHasItsOwnKey(t *testing.T) {
	b := newBench(t)
	n := b.node("send", "_HostSend", edge(), vec[float32](1))
	k, err := b.state.NewKernel(n)
	if err != nil {
		t.Fatal(err)
	}
	c := &graph.Context{
		Ctx: t.Context(), Step: b.step, Node: n, Inputs: []graph.Value{vec[float32](1)},
		FrameIter: rendezvous.FrameIter{Frame: 7, Iter: 2},
	}
	if err := k.Compute(c); err != nil {
		t.Fatal(err)
	}
	key, err := rendezvous.ParseKey("/job:ps/replica:0/task:0/device:CPU:0;ffffffffffffffff;" +
		"/job:worker/replica:0/task:0/device:CPU:0;edge_1_x;7:2")
	if err != nil {
		t.Fatal(err)
	}
	v, err := b.step.Rendezvous.Recv(t.Context(), key, rendezvous.Args{})
	if err != nil {
		t.Fatal(err)
	}
	v.Tensor.Release()
}

func TestAnOpThatTheSetLacksIsRefusedInWords(t *testing.T) {
	b := newBench(t)
	n := &graph.Node{Name: "queue", Op: "IteratorV2"}
	_, err := b.state.NewKernel(n)
	if status.CodeOf(err) != status.Unimplemented {
		t.Fatal(err)
	}
	for _, want := range []string{"queue", "IteratorV2", "tryst-tensorflow", "docs/ops.md"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	err = b.fails("AddV2", nil, text(nil, "a"), text(nil, "b"))
	for _, want := range []string{"AddV2", "T = string", "tryst-tensorflow"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}
