package graph_test

import (
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// What TensorFlow's executor_test.cc asserts of communication, with the kernels in Go and a real
// rendezvous.

const (
	here  = "/job:w/replica:0/task:0/device:CPU:0"
	there = "/job:w/replica:0/task:1/device:CPU:0"
)

// transfer is a _Send or _Recv of a float called name.
func transfer(op, name string, inputs ...string) *tfpb.NodeDef {
	text := func(s string) *tfpb.AttrValue {
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}}
	}
	kind := &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType_DT_FLOAT}}
	n := &tfpb.NodeDef{Name: op + name, Op: op, Device: here, Input: inputs, Attr: map[string]*tfpb.AttrValue{
		"tensor_name": text(name), "send_device": text(there), "recv_device": text(here), "send_device_incarnation": {Value: &tfpb.AttrValue_I{I: 7}}}}
	if op == "_Send" {
		n.Attr["T"], n.Attr["send_device"], n.Attr["recv_device"] = kind, text(here), text(there)
	} else {
		n.Attr["tensor_type"] = kind
	}
	return n
}

// keyOf returns the key of such a node.
func keyOf(t testing.TB, op, name string) rendezvous.Key {
	t.Helper()
	from, to := there, here
	if op == "_Send" {
		from, to = here, there
	}
	k, err := rendezvous.ParseKey(rendezvous.CreateKey(from, 7, to, name, rendezvous.FrameIter{}))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func echo(t testing.TB, r rendezvous.Rendezvous) error {
	t.Helper()
	set := ops.New()
	g, err := graph.Import(&tfpb.GraphDef{Node: []*tfpb.NodeDef{transfer("_Recv", "x"), transfer("_Send", "y", "_Recvx")}}, graph.ImportOptions{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	state, err := set.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	e, err := graph.NewExecutor(g, state)
	if err != nil {
		t.Fatal(err)
	}
	return e.Run(t.Context(), &graph.Step{ID: 1, Rendezvous: r, Allocator: tensor.Heap{}})
}

func scalar(t testing.TB, v any) *tensor.Tensor {
	t.Helper()
	var x *tensor.Tensor
	var err error
	switch v := v.(type) {
	case float32:
		x, err = tensor.FromSlice(tensor.Shape{}, []float32{v})
	case int32:
		x, err = tensor.FromSlice(tensor.Shape{}, []int32{v})
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestStepReceivesAndSends(t *testing.T) {
	for _, dead := range []bool{false, true} {
		r := rendezvous.NewLocal()
		defer r.Close()
		if err := r.Send(keyOf(t, "_Recv", "x"), rendezvous.Args{}, scalar(t, float32(3)), dead); err != nil {
			t.Fatal(err)
		}
		if err := echo(t, r); err != nil {
			t.Fatal(err)
		}
		got, err := r.Recv(t.Context(), keyOf(t, "_Send", "y"), rendezvous.Args{})
		if err != nil || got.Dead != dead || !dead && !tensor.Equal(got.Tensor, scalar(t, float32(3))) {
			t.Errorf("dead %v: %+v, %v", dead, got, err)
		}
	}
}

func TestAbortOfTheRendezvousEndsTheStep(t *testing.T) {
	r := rendezvous.NewLocal()
	defer r.Close()
	done := make(chan error)
	go func() { done <- echo(t, r) }()
	r.Abort(status.New(status.Aborted, "the step was aborted"))
	err := <-done
	if status.CodeOf(err) != status.Aborted || !strings.HasPrefix(status.From(err).Message(), "the step was aborted\n\t [[{{node _Recvx}}]]") {
		t.Errorf("error %v", err)
	}
}

func TestReceivedTypeMustBeThatOfTheNode(t *testing.T) {
	r := rendezvous.NewLocal()
	defer r.Close()
	if err := r.Send(keyOf(t, "_Recv", "x"), rendezvous.Args{}, scalar(t, int32(3)), false); err != nil {
		t.Fatal(err)
	}
	if err := echo(t, r); status.CodeOf(err) != status.Internal || !strings.Contains(err.Error(), "{{node _Recvx}}") {
		t.Errorf("error %v", err)
	}
}
