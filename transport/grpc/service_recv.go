package grpctransport

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// recvTensorMethod describes RecvTensor. A response that an interceptor keeps
// from being sent is dropped, and the reference to the tensor with it.
func (s *service) recvTensorMethod() grpc.MethodDesc {
	const name = "RecvTensor"
	service := tensorflowgrpc.WorkerService_ServiceDesc.ServiceName
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			var made *response
			m := method(service, name, func(ctx context.Context, req *tfpb.RecvTensorRequest) (any, error) {
				r, err := s.recvTensor(ctx, req)
				made = r
				return r, err
			})
			reply, err := m.Handler(srv, ctx, dec, interceptor)
			if made != nil && (err != nil || reply != any(made)) {
				made.drop()
			}
			return reply, err
		},
	}
}

func (s *service) recvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*response, error) {
	// Who asks is the worker's business; here it only ties the asker to its
	// connection. What does not parse the worker refuses.
	var asker trystpb.RecvOptions
	isTryst := req.GetTransportOptions().MessageIs(&asker) && req.GetTransportOptions().UnmarshalTo(&asker) == nil
	if isTryst {
		carries(ctx, s.Kept, transport.Asker{Name: asker.GetAsker(), Incarnation: asker.GetAskerIncarnation()})
	}
	r, err := s.Worker.RecvTensor(ctx, req)
	if err != nil {
		return nil, err
	}
	if r.SendStartMicros == 0 {
		r.SendStartMicros = time.Now().UnixMicro()
	}
	if !isTryst {
		return encodeAnswer(r, req)
	}
	extra := &trystpb.RecvExtra{SenderIncarnation: s.Self.Incarnation}
	if r.Tensor.Size() <= s.UnaryLimit || !transport.CallerOf(ctx).Chunks {
		if r.Options, err = anypb.New(extra); err != nil {
			r.Tensor.Release()
			return nil, err
		}
		return encodeAnswer(r, req)
	}
	defer r.Tensor.Release()
	if extra.Ticket, err = ticketFor(r.Tensor); err != nil {
		return nil, err
	}
	return encodeTicket(r, extra)
}

// encodeAnswer is encodeResponse with an error that names the request, as
// TensorFlow's does.
func encodeAnswer(r *transport.TensorResponse, req *tfpb.RecvTensorRequest) (*response, error) {
	resp, err := encodeResponse(r)
	if err != nil {
		return nil, status.Errorf(status.CodeOf(err), "%s (request_id: %d step_id: %d rendezvous_key: %s)",
			status.From(err).Message(), req.GetRequestId(), req.GetStepId(), req.GetRendezvousKey())
	}
	return resp, nil
}

// ticketFor returns the ticket for a kept tensor's content.
func ticketFor(t *tensor.Tensor) (*trystpb.Ticket, error) {
	if t.DType().Plain() {
		return &trystpb.Ticket{Bytes: uint64(t.Size())}, nil
	}
	p, err := tensorproto.Append(nil, t)
	if err != nil {
		return nil, tooLarge(err)
	}
	return &trystpb.Ticket{Bytes: uint64(len(p)), Proto: true}, nil
}

// encodeTicket returns the answer whose content is to be fetched.
func encodeTicket(r *transport.TensorResponse, extra *trystpb.RecvExtra) (*response, error) {
	options, err := anypb.New(extra)
	if err != nil {
		return nil, err
	}
	b, err := proto.Marshal(&tfpb.RecvTensorResponse{
		Tensor: &tfpb.TensorProto{
			Dtype:       tensorproto.DTypeToProto(r.Tensor.DType()),
			TensorShape: tensorproto.ShapeToProto(r.Tensor.Shape()),
		},
		IsDead: r.Dead, SendStartMicros: r.SendStartMicros, RequireAck: r.RequireAck, TransportOptions: options,
	})
	if err != nil {
		return nil, err
	}
	return &response{mem.BufferSlice{mem.SliceBuffer(b)}}, nil
}
