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
	charged, err := s.chargeAnswer(ctx, r, req)
	if err != nil {
		return nil, named(err, req)
	}
	return encodeAnswer(r, req, charged)
}

// chargeAnswer charges what gRPC will hold of r. When it fails it releases the tensor.
func (s *service) chargeAnswer(ctx context.Context, r *transport.TensorResponse, req *tfpb.RecvTensorRequest) (charge, error) {
	n, copies, err := weigh(r.Tensor)
	if err != nil || n == 0 {
		if err != nil {
			r.Tensor.Release()
		}
		return charge{}, err
	}
	q := quotaOf(ctx)
	charged, ok := q.tryCharge(n, copies)
	if ok {
		return charged, nil
	}
	var asker trystpb.RecvOptions
	if o := req.GetTransportOptions(); o.MessageIs(&asker) && o.UnmarshalTo(&asker) == nil {
		r.Tensor, charged, err = s.chargeKept(ctx, r.Tensor, receiveID{transport.Process{Name: asker.GetAsker(), Incarnation: asker.GetAskerIncarnation()}, asker.GetId(), asker.GetAttempt()}, n, copies)
	} else if charged, err = q.charge(ctx, n, copies); err != nil {
		r.Tensor.Release()
	}
	return charged, err
}

// receiveID names an attempt of a Tryst peer's receive.
type receiveID struct {
	asker   transport.Process
	id      uint64
	attempt uint32
}

// chargeKept charges n bytes for the tensor of a kept answer, and takes over the reference to it.
// While it waits it has none, since the asker may finish the receive meanwhile: then nothing
// counts the tensor.
func (s *service) chargeKept(ctx context.Context, t *tensor.Tensor, of receiveID, n, copies int64) (*tensor.Tensor, charge, error) {
	q := quotaOf(ctx)
	if charged, ok := q.tryCharge(n, copies); ok {
		return t, charged, nil
	}
	t.Release()
	charged, err := q.charge(ctx, n, copies)
	if err != nil {
		return nil, charge{}, err
	}
	v, err := s.Cache.Value(of.asker, of.id, of.attempt)
	if err != nil {
		charged.end()
		return nil, charge{}, err
	}
	return v.Tensor, charged, nil
}

// encodeAnswer is encodeResponse with an error that names the request, as
// TensorFlow's does.
func encodeAnswer(r *transport.TensorResponse, req *tfpb.RecvTensorRequest, charged charge) (any, error) {
	resp, err := encodeResponse(r, charged)
	if err != nil {
		return nil, named(err, req)
	}
	return resp, nil
}

func named(err error, req *tfpb.RecvTensorRequest) error {
	return status.Errorf(status.CodeOf(err), "%s (request_id: %d step_id: %d rendezvous_key: %s)",
		status.From(err).Message(), req.GetRequestId(), req.GetStepId(), req.GetRendezvousKey())
}

// ticketFor returns the ticket for a kept tensor's content.
func ticketFor(t *tensor.Tensor) (*trystpb.Ticket, error) {
	if t.DType().Plain() {
		return &trystpb.Ticket{Bytes: uint64(t.Size())}, nil
	}
	size, err := tensorproto.Size(t)
	if err != nil {
		return nil, tooLarge(err)
	}
	return &trystpb.Ticket{Bytes: uint64(size), Proto: true}, nil //nolint:gosec // not negative
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
