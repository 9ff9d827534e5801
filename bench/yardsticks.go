package bench

import (
	"context"
	"encoding/binary"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// The gRPC yardsticks are two methods of a service that only this package has.
const (
	yardstickServiceName = "tryst.bench.Yardsticks"
	passThroughMethod    = "PassThrough"
	generatedMethod      = "Generated"
)

// yardstickService answers with tensors, by the size that is asked for.
func yardstickService(tensors map[int64]*tensor.Tensor) *grpc.ServiceDesc {
	find := func(size int64) (*tensor.Tensor, error) {
		if t := tensors[size]; t != nil {
			return t, nil
		}
		return nil, status.Errorf(status.NotFound, "no tensor has %d bytes", size)
	}
	passThrough := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var q question
		if err := decode(&q); err != nil {
			return nil, err
		}
		t, err := find(sizeOf(q))
		if err != nil {
			return nil, err
		}
		return content(t.Bytes()), nil
	}
	generated := func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		var req tfpb.RecvTensorRequest
		if err := decode(&req); err != nil {
			return nil, err
		}
		t, err := find(req.GetStepId())
		if err != nil {
			return nil, err
		}
		return &tfpb.RecvTensorResponse{
			SendStartMicros: time.Now().UnixMicro(),
			Tensor: &tfpb.TensorProto{
				Dtype:         tfpb.DataType_DT_UINT8,
				TensorShape:   &tfpb.TensorShapeProto{Dim: []*tfpb.TensorShapeProto_Dim{{Size: t.Size()}}},
				TensorContent: t.Bytes(),
			},
		}, nil
	}
	return &grpc.ServiceDesc{
		ServiceName: yardstickServiceName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: passThroughMethod, Handler: passThrough},
			{MethodName: generatedMethod, Handler: generated},
		},
	}
}

// newQuestion asks for a size. It is as long as text, which is what a receive
// has to send in its place.
func newQuestion(size int64, text string) question {
	q := make(question, 8+len(text))
	binary.BigEndian.PutUint64(q, uint64(size))
	copy(q[8:], text)
	return q
}

// sizeOf returns what newQuestion put in; 0 when there is none.
func sizeOf(q question) int64 {
	if len(q) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(q))
}

// yardsticks is the client of the gRPC yardsticks, over one connection with the
// options of Tryst's own.
type yardsticks struct {
	conns *grpctransport.Conns
	conn  grpc.ClientConnInterface
	pool  tensor.Allocator
	codec grpc.CallOption
}

func dialYardsticks(address string, pool tensor.Allocator, o grpctransport.DialOptions) (*yardsticks, error) {
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{
		Resolve: func(cluster.Task) (string, bool) { return address, true }, Dial: o,
	})
	conn, err := conns.Conn(cluster.Task{Job: "yardsticks"})
	if err != nil {
		return nil, err
	}
	return &yardsticks{conns: conns, conn: conn, pool: pool, codec: grpc.ForceCodecV2(newCodec())}, nil
}

func (y *yardsticks) close() error { return y.conns.Close() }

// passThrough is one bare call; text stands for a receive's key.
func (y *yardsticks) passThrough(ctx context.Context, size int64, text string) error {
	a := arrived{pool: y.pool}
	err := y.conn.Invoke(ctx, "/"+yardstickServiceName+"/"+passThroughMethod, newQuestion(size, text), &a, y.codec)
	if a.buffer == nil {
		return err
	}
	n := a.buffer.Len()
	a.buffer.Release()
	return arrivedWhole(err, n, size)
}

// generated is one call with the generated code.
func (y *yardsticks) generated(ctx context.Context, size int64, text string) error {
	var resp tfpb.RecvTensorResponse
	req := &tfpb.RecvTensorRequest{StepId: size, RendezvousKey: text}
	if err := y.conn.Invoke(ctx, "/"+yardstickServiceName+"/"+generatedMethod, req, &resp, y.codec); err != nil {
		return err
	}
	b, err := y.pool.Allocate(len(resp.GetTensor().GetTensorContent()))
	if err != nil {
		return err
	}
	n := copy(b.Bytes(), resp.GetTensor().GetTensorContent())
	b.Release()
	return arrivedWhole(nil, n, size)
}

func arrivedWhole(err error, n int, size int64) error {
	if err == nil && int64(n) != size {
		return status.Errorf(status.DataLoss, "%d bytes arrived in place of %d", n, size)
	}
	return err
}
