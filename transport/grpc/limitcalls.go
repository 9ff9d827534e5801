package grpctransport

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
)

// LimitCalls returns a registrar for services that a client needs rarely, such as health and
// reflection. Few of their calls may be under way on one connection and from one address: one
// more ends with ResourceExhausted, before its request is parsed. Their answers are charged as
// tensors are. s is a server made with ServerOptions.
func LimitCalls(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return limitedCalls{s} }

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
			if interceptor == nil {
				return nil, toGRPC(ctx, err)
			}
			// The interceptor counts the call.
			return interceptor(ctx, nil, &grpc.UnaryServerInfo{Server: srv, FullMethod: full},
				func(context.Context, any) (any, error) { return nil, toGRPC(ctx, err) })
		}
		defer q.leave(service)
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
		return handler(srv, chargedStream{stream, q})
	}
}

// chargedStream is a stream whose messages are charged.
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

// charged returns a message as bytes that are charged to q, unless it is small.
func charged(ctx context.Context, q *connQuota, m any) (any, error) {
	message, ok := m.(proto.Message)
	if !ok {
		return m, nil
	}
	size := proto.Size(message)
	if size <= copyLimit {
		return m, nil
	}
	c, err := q.charge(ctx, int64(size), int64(size))
	if err != nil {
		return nil, toGRPC(ctx, err)
	}
	l := newLease(nil, c)
	defer l.end()
	b, err := proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(make([]byte, 0, size), message)
	if err != nil {
		return nil, toGRPC(ctx, err)
	}
	return &response{mem.BufferSlice{l.buffer(b)}}, nil
}
