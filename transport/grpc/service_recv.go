package grpctransport

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// recvTensor answers RecvTensor with a *response.
func (s *service) recvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (any, error) {
	caller := transport.CallerOf(ctx)
	caller.Accept = s.accept
	r, err := s.Worker.RecvTensor(transport.WithCaller(ctx, caller), req)
	if err != nil {
		return nil, err
	}
	if r.SendStartMicros == 0 {
		r.SendStartMicros = time.Now().UnixMicro()
	}
	if r.Dead {
		r.Tensor.Release()
		r.Tensor = deadTensor()
	}
	if req.GetTransportOptions().MessageIs((*trystpb.RecvOptions)(nil)) {
		if r.Tensor.Size() > s.UnaryLimit && caller.Chunks {
			return s.encodeTicket(r)
		}
		r.Options = s.extra
	}
	return encodeAnswer(r, req)
}

// encodeAnswer is encodeResponse with an error that names the request, as
// TensorFlow's does.
func encodeAnswer(r *transport.TensorResponse, req *tfpb.RecvTensorRequest) (any, error) {
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

// encodeTicket returns the answer whose content is to be fetched. It takes over
// the reference to the tensor.
func (s *service) encodeTicket(r *transport.TensorResponse) (any, error) {
	defer r.Tensor.Release()
	ticket, err := ticketFor(r.Tensor)
	if err != nil {
		return nil, err
	}
	options, err := anypb.New(&trystpb.RecvExtra{SenderIncarnation: s.Self.Incarnation, Ticket: ticket})
	if err != nil {
		return nil, err
	}
	return &tfpb.RecvTensorResponse{
		Tensor: &tfpb.TensorProto{
			Dtype:       tensorproto.DTypeToProto(r.Tensor.DType()),
			TensorShape: tensorproto.ShapeToProto(r.Tensor.Shape()),
		},
		IsDead: r.Dead, SendStartMicros: r.SendStartMicros, RequireAck: r.RequireAck, TransportOptions: options,
	}, nil
}
