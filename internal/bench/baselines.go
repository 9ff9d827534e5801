package bench

import (
	"context"
	"encoding/binary"
	"math"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// The gRPC baselines are two methods of a service in this package.
const (
	baselineServiceName = "tryst.bench.Baselines"
	passThroughMethod   = "PassThrough"
	generatedMethod     = "Generated"
)

// baselineService responds with a tensor of the requested size.
func baselineService(tensors map[int64]*tensor.Tensor) *grpc.ServiceDesc {
	find := func(size int64) (*tensor.Tensor, error) {
		if t := tensors[size]; t != nil {
			return t, nil
		}
		return nil, status.Errorf(status.NotFound, "there is no tensor of %d bytes", size)
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
		ServiceName: baselineServiceName, HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			{MethodName: passThroughMethod, Handler: passThrough},
			{MethodName: generatedMethod, Handler: generated},
		},
	}
}

// newQuestion makes a request for a size, as long as text, the key that a receive would send.
func newQuestion(size int64, text string) question {
	q := make(question, 8+len(text))
	binary.BigEndian.PutUint64(q, uint64(size))
	copy(q[8:], text)
	return q
}

// sizeOf returns the size in a request of newQuestion, or 0 if there is none.
func sizeOf(q question) int64 {
	if len(q) < 8 {
		return 0
	}
	return int64(binary.BigEndian.Uint64(q))
}

// baselines is the client of the gRPC baselines, over one connection with the same options as
// Tryst's.
type baselines struct {
	conns   *grpctransport.Conns
	conn    grpc.ClientConnInterface
	pool    tensor.Allocator
	codec   grpc.CallOption
	largest grpc.CallOption
}

func dialBaselines(address string, pool tensor.Allocator, o grpctransport.DialOptions) (*baselines, error) {
	conns := grpctransport.NewConns(grpctransport.ConnsOptions{
		Resolve: func(cluster.Task) (string, bool) { return address, true }, Dial: o,
	})
	conn, err := conns.Conn(cluster.Task{Job: "baselines"})
	if err != nil {
		return nil, err
	}
	return &baselines{conns: conns, conn: conn, pool: pool, codec: grpc.ForceCodecV2(newCodec()), largest: grpc.MaxCallRecvMsgSize(math.MaxInt32)}, nil
}

func (b *baselines) close() error { return b.conns.Close() }

// passThrough makes one bare call; text has the length of a receive's key.
func (b *baselines) passThrough(ctx context.Context, size int64, text string) error {
	a := arrived{pool: b.pool}
	err := b.conn.Invoke(ctx, "/"+baselineServiceName+"/"+passThroughMethod, newQuestion(size, text), &a, b.codec, b.largest)
	if a.buffer == nil {
		return err
	}
	n := a.buffer.Len()
	a.buffer.Release()
	return arrivedWhole(err, n, size)
}

// generated makes one call with generated code.
func (b *baselines) generated(ctx context.Context, size int64, text string) error {
	var resp tfpb.RecvTensorResponse
	req := &tfpb.RecvTensorRequest{StepId: size, RendezvousKey: text}
	if err := b.conn.Invoke(ctx, "/"+baselineServiceName+"/"+generatedMethod, req, &resp, b.codec, b.largest); err != nil {
		return err
	}
	buf, err := b.pool.Allocate(len(resp.GetTensor().GetTensorContent()))
	if err != nil {
		return err
	}
	n := copy(buf.Bytes(), resp.GetTensor().GetTensorContent())
	buf.Release()
	return arrivedWhole(nil, n, size)
}

func arrivedWhole(err error, n int, size int64) error {
	if err == nil && int64(n) != size {
		return status.Errorf(status.DataLoss, "received %d bytes, want %d", n, size)
	}
	return err
}
