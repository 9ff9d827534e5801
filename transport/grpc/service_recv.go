package grpctransport

import (
	"context"
	"time"

	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/transport"
)

// recvTensor implements RecvTensor. It returns a *response, or the message with a ticket.
func (s *service) recvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (any, error) {
	caller := transport.CallerOf(ctx)
	caller.Accept = s.accept
	r, err := s.Worker.RecvTensor(transport.WithCaller(ctx, caller), req)
	if err != nil {
		return nil, err
	}
	encoded, err := s.encodeValue(ctx, caller, r, req)
	if err != nil && r.Failed != nil && ctx.Err() == nil {
		r.Failed(err)
	}
	if r.Sent == nil {
		return encoded, err
	}
	if made, ok := encoded.(*response); ok && err == nil {
		made.sent = r.Sent
	} else {
		r.Sent(err)
	}
	return encoded, err
}

// encodeValue encodes a response. It takes over the reference to its tensor.
func (s *service) encodeValue(ctx context.Context, caller transport.Caller, r *transport.TensorResponse, req *tfpb.RecvTensorRequest) (any, error) {
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
	charged, err := s.chargeResponse(ctx, r, req)
	if err != nil {
		return nil, named(err, req)
	}
	return encodeResponseFor(r, req, charged)
}

// chargeResponse charges to the connection the bytes of r that gRPC will hold. It releases
// the tensor on error.
func (s *service) chargeResponse(ctx context.Context, r *transport.TensorResponse, req *tfpb.RecvTensorRequest) (charge, error) {
	n, copies, err := heldBytes(r.Tensor)
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
	var opts trystpb.RecvOptions
	if o := req.GetTransportOptions(); o.MessageIs(&opts) && o.UnmarshalTo(&opts) == nil {
		of := receiveID{transport.Process{Name: opts.GetRequester(), Incarnation: opts.GetRequesterIncarnation()}, opts.GetId(), opts.GetAttempt()}
		r.Tensor, charged, err = s.chargeCached(ctx, r.Tensor, of, n, copies)
		return charged, err
	}
	reads := beginRead(r.Tensor, q) // such a client may let it wait behind what it does not read
	charged, err = q.charge(ctx, n, copies)
	reads.end()
	if err != nil {
		r.Tensor.Release()
	}
	return charged, err
}

// receiveID identifies one attempt of a Tryst peer's receive.
type receiveID struct {
	requester transport.Process
	id        uint64
	attempt   uint32
}

// chargeCached charges n bytes for t, the tensor of a cached response. It takes over the
// caller's reference and returns one. It holds none while it waits: the requester may
// acknowledge the receive meanwhile, and then the cache no longer counts the tensor.
func (s *service) chargeCached(ctx context.Context, t *tensor.Tensor, of receiveID, n, copies int64) (*tensor.Tensor, charge, error) {
	q := quotaOf(ctx)
	if charged, ok := q.tryCharge(n, copies); ok {
		return t, charged, nil
	}
	t.Release()
	charged, err := q.charge(ctx, n, copies)
	if err != nil {
		return nil, charge{}, err
	}
	v, err := s.Cache.Value(of.requester, of.id, of.attempt)
	if err != nil {
		charged.end()
		return nil, charge{}, err
	}
	return v.Tensor, charged, nil
}

// encodeResponseFor is encodeResponse with errors that name the request, as TensorFlow's do.
func encodeResponseFor(r *transport.TensorResponse, req *tfpb.RecvTensorRequest, charged charge) (any, error) {
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

// ticketFor returns the ticket for the content of a cached tensor.
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

// encodeTicket returns a response with a ticket in place of the content. It takes over the
// caller's reference to the tensor.
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
