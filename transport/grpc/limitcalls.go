package grpctransport

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// LimitCalls returns a registrar for services with few calls per client, such as health and
// reflection. It limits the calls in progress on one connection and from one address. A call
// beyond the limit ends with ResourceExhausted before its request is parsed. Responses are
// charged like those with tensors, and not compressed, whatever the client uses: that would take
// processor time for each call. s must be a server made with ServerOptions.
func LimitCalls(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return limitedCalls{Guard(s)} }

type limitedCalls struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (l limitedCalls) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range d.Methods {
		d.Methods[i].Handler = limitUnary(d.ServiceName, d.Methods[i])
	}
	for i := range d.Streams {
		d.Streams[i].Handler = limitStream(d.ServiceName, d.Streams[i].Handler)
	}
	l.ServiceRegistrar.RegisterService(&d, impl)
}

func limitUnary(service string, m grpc.MethodDesc) grpc.MethodHandler {
	full := "/" + service + "/" + m.MethodName
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		q := quotaOf(ctx)
		if err := q.enter(service); err != nil {
			return refused(ctx, srv, full, err, interceptor)
		}
		defer q.leave(service)
		plain(ctx)
		resp, err := m.Handler(srv, ctx, dec, interceptor)
		if err != nil {
			return nil, err
		}
		return charged(ctx, q, resp)
	}
}

func limitStream(service string, handler grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		q := quotaOf(stream.Context())
		if err := q.enter(service); err != nil {
			return toGRPC(stream.Context(), err)
		}
		defer q.leave(service)
		plain(stream.Context())
		return handler(srv, chargedStream{stream, q})
	}
}

// plain makes the responses of a call plain: gRPC would compress them for a client that compresses its request.
func plain(ctx context.Context) {
	_ = grpc.SetSendCompressor(ctx, encoding.Identity) // fails only outside of a call
}

// chargedStream is a stream that charges its messages to the connection.
type chargedStream struct {
	grpc.ServerStream
	quota *connQuota
}

// SendMsg implements grpc.ServerStream.
func (s chargedStream) SendMsg(m any) error {
	m, err := charged(s.Context(), s.quota, m)
	if err != nil {
		return err
	}
	return s.ServerStream.SendMsg(m)
}

// SendBuilt charges size bytes and then builds the message, which must not be larger, and sends it. So a message
// that waits for others to be read takes no memory.
func (s chargedStream) SendBuilt(size int, build func() proto.Message) error {
	c, err := s.quota.charge(s.Context(), int64(size), int64(size))
	if err != nil {
		return toGRPC(s.Context(), err)
	}
	m := build()
	resp, err := encoded(m, proto.Size(m), c)
	if err != nil {
		return toGRPC(s.Context(), err)
	}
	return s.ServerStream.SendMsg(resp)
}

// charged returns m encoded and charged to q; m itself when it is small or no protobuf
// message.
func charged(ctx context.Context, q *connQuota, m any) (any, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return m, nil
	}
	size := sizeOf(message)
	if size <= copyLimit {
		return m, nil
	}
	ready := encodingOf(message, size)
	copies := int64(size - len(ready))
	c, err := q.charge(ctx, int64(size), copies)
	if err != nil {
		return nil, toGRPC(ctx, err)
	}
	if ready != nil {
		l := newLease(nil, c)
		defer l.end()
		return &response{buffers: mem.BufferSlice{l.buffer(ready)}}, nil
	}
	resp, err := encoded(message, size, c)
	if err != nil {
		return nil, toGRPC(ctx, err)
	}
	return resp, nil
}

// encodingOf returns the encoding of a message that has size bytes, if the message is nothing but its encoding: all of
// it is unknown fields, which protobuf writes as they are. It is lent to gRPC, and must not change any more. nil for any
// other message.
func encodingOf(m proto.Message, size int) []byte {
	if b := m.ProtoReflect().GetUnknown(); len(b) == size {
		return b
	}
	return nil
}

// sizeOf returns the size of m when it is encoded. m must not change any more. One message may be the response of
// many calls, such as a manifest of a hundred thousand tensors: it is measured once, and not in each call before that
// waits for its client to read.
func sizeOf(m proto.Message) int { return proto.MarshalOptions{UseCachedSize: true}.Size(m) }

// encoded returns m encoded, with the charge until it is written. proto.Size or sizeOf must have returned size.
func encoded(m proto.Message, size int, c charge) (*response, error) {
	l := newLease(nil, c)
	defer l.end()
	return encodedBy(l, m, size)
}

// encodedBy returns m encoded, with a reference to the lease until it is written. proto.Size or sizeOf must have
// returned size.
func encodedBy(l *lease, m proto.Message, size int) (*response, error) {
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, size), m)
	if err != nil {
		return nil, err
	}
	return &response{buffers: mem.BufferSlice{l.buffer(b)}}, nil
}
