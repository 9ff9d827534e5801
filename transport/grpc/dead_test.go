package grpctransport

import (
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestDeadValueTakesNoMemory: a dead value of any shape needs no memory.
func TestDeadValueTakesNoMemory(t *testing.T) {
	extra, err := anypb.New(&trystpb.RecvExtra{SenderIncarnation: 1, Ticket: &trystpb.Ticket{Bytes: 4 << 40}})
	if err != nil {
		t.Fatal(err)
	}
	huge := &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: 1 << 20}}}
	for name, m := range map[string]*tfpb.RecvTensorResponse{
		"with its content":     {IsDead: true, Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: huge, TensorContent: make([]byte, 4<<20)}},
		"a value that repeats": {IsDead: true, Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: huge, FloatVal: []float32{1}}},
		"empty strings":        {IsDead: true, Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_STRING, TensorShape: huge, TensorContent: make([]byte, 1<<20)}},
		"with a ticket":        {IsDead: true, Tensor: &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: huge}, TransportOptions: extra},
		"without a tensor":     {IsDead: true},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		alloc := tensortest.NewAllocator(t)
		alloc.SetLimit(1)
		r := received{alloc: alloc}
		r.parse(split(b, 3))
		switch {
		case r.err != nil:
			t.Errorf("%s: %v", name, r.err)
		case !r.Dead || r.Tensor.DType() != tensor.Float32 || !r.Tensor.Shape().Equal(tensor.Vector(0)):
			t.Errorf("%s: %v, dead %v", name, r.Tensor, r.Dead)
		case r.ticket() != nil:
			t.Errorf("%s: it has content to fetch", name)
		}
		r.release()
	}
}

// TestDeadValueIsSentEmpty: the content of a dead value is not sent.
func TestDeadValueIsSentEmpty(t *testing.T) {
	c := new(testCluster)
	a, b := c.start(t, 0, nodeOptions{unaryLimit: 1 << 10}), c.start(t, 1, nodeOptions{})
	conn, err := b.conns.Conn(a.task)
	if err != nil {
		t.Fatal(err)
	}
	for i, n := range []int64{1 << 8, 1 << 20} { // whole, and beyond the limit for one message
		step := int64(i + 1)
		x := tensortest.Tensor(t, tensor.Float32, n)
		if err := a.manager.Find(step).Send(a.key(b, "x"), rendezvous.Args{}, x, true); err != nil {
			t.Fatal(err)
		}
		resp, err := tensorflowgrpc.NewWorkerServiceClient(conn).RecvTensor(t.Context(),
			&tfpb.RecvTensorRequest{StepId: step, RendezvousKey: a.key(b, "x").String()})
		if err != nil {
			t.Fatal(err)
		}
		got := resp.GetTensor()
		if !resp.GetIsDead() || len(got.GetTensorContent()) > 0 || got.GetTensorShape().GetDim()[0].GetSize() != 0 {
			t.Errorf("dead %v, shape %v, %d bytes", resp.GetIsDead(), got.GetTensorShape(), len(got.GetTensorContent()))
		}
	}
}
