package grpctransport

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/status"
)

// Guard returns a registrar whose services count each request before it is parsed, and charge what it
// becomes to the address of its client until the call ends. A request beyond the limits ends with
// ResourceExhausted. Calls of other services count as unread responses until they end. s must be a server
// made with ServerOptions. Register and LimitCalls call it.
func Guard(s grpc.ServiceRegistrar) grpc.ServiceRegistrar { return guarded{s} }

type guarded struct{ grpc.ServiceRegistrar }

// RegisterService implements grpc.ServiceRegistrar.
func (g guarded) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d := *desc
	d.Methods, d.Streams = slices.Clone(d.Methods), slices.Clone(d.Streams)
	for i := range d.Methods {
		d.Methods[i].Handler = guardUnary(d.ServiceName, d.Methods[i])
	}
	for i := range d.Streams {
		d.Streams[i].Handler = guardStream(d.Streams[i].Handler)
	}
	g.ServiceRegistrar.RegisterService(&d, impl)
}

func guardUnary(service string, m grpc.MethodDesc) grpc.MethodHandler {
	full := "/" + service + "/" + m.MethodName
	return func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		c := connectionOf(ctx)
		if c == nil {
			return m.Handler(srv, ctx, dec, interceptor)
		}
		c.quota.unread.serve()
		defer c.quota.unread.returned()
		if err := c.crowded(); err != nil {
			return refused(ctx, srv, full, err, interceptor)
		}
		in := foreign{conn: c}
		defer in.end()
		return m.Handler(srv, ctx, func(v any) error { return in.receive(ctx, dec, v) }, interceptor)
	}
}

// refused ends a call of a unary method. Interceptors see refused calls, too, for instance to count them.
func refused(ctx context.Context, srv any, full string, why error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	if interceptor == nil {
		return nil, toGRPC(ctx, why)
	}
	return interceptor(ctx, nil, &grpc.UnaryServerInfo{Server: srv, FullMethod: full},
		func(context.Context, any) (any, error) { return nil, toGRPC(ctx, why) })
}

func guardStream(handler grpc.StreamHandler) grpc.StreamHandler {
	return func(srv any, stream grpc.ServerStream) error {
		c := connectionOf(stream.Context())
		if c == nil {
			return handler(srv, stream)
		}
		c.quota.unread.serve()
		defer c.quota.unread.returned()
		if err := c.crowded(); err != nil {
			return toGRPC(stream.Context(), err)
		}
		s := &guardedStream{stream, foreign{conn: c}}
		defer s.in.end()
		return handler(srv, s)
	}
}

// guardedStream is a stream whose messages are counted before they are parsed.
type guardedStream struct {
	grpc.ServerStream
	in foreign // the last message
}

// RecvMsg implements grpc.ServerStream.
func (s *guardedStream) RecvMsg(v any) error {
	return s.in.receive(s.Context(), s.ServerStream.RecvMsg, v)
}

// crowded returns why a call cannot be served, and logs it; nil when it can.
func (c *connection) crowded() error {
	err := c.quota.crowded()
	if err != nil {
		c.quota.addr.server.refuseRequest(c.Conn.RemoteAddr(), refusedBytes, status.From(err).Message())
	}
	return err
}

// foreign is a request, charged with what it takes from its parsing on. It implements parser and taker.
type foreign struct {
	conn    *connection
	into    proto.Message
	came    int64 // bytes of the message, which its stream is charged with
	size    int64 // what it takes, of which firstBytes are those of its call
	charged int64
	crowded bool  // refused since others take all that they may
	err     error // why it was not parsed
}

// receive receives a request into v.
func (f *foreign) receive(ctx context.Context, from func(any) error, v any) error {
	m, ok := v.(proto.Message)
	if !ok {
		return from(v)
	}
	f.into = m
	if err := from(f); err != nil {
		return err
	}
	return toGRPC(ctx, f.err)
}

// parse implements parser.
func (f *foreign) parse(data mem.BufferSlice) {
	f.end() // of an earlier message
	f.came = int64(data.Len())
	q := f.conn.quota.addr.server
	if len(data) > 1 { // these are copied
		if f.err = f.take(f.came); f.err != nil {
			return
		}
		defer func() { _ = f.take(-f.came) }() // gives back
	}
	f.err = inOne(data, func(b []byte) error { return unmarshalRequest(&q.scanner, b, f.into, q.largest, f) })
	if f.err != nil && !f.crowded {
		q.refuseRequest(f.conn.Conn.RemoteAddr(), refusedSize, status.From(f.err).Message())
	}
}

// take implements taker.
func (f *foreign) take(n int64) error {
	more := max(0, f.size+n-firstBytes) - f.charged
	if more <= 0 {
		f.conn.quota.giveRequest(-more)
	} else if refused := f.conn.quota.takeRequest(more, f.size+n); refused != "" {
		f.crowded = true
		refused = "the server cannot parse the request: " + refused
		f.conn.quota.addr.server.refuseRequest(f.conn.Conn.RemoteAddr(), refusedBytes, refused)
		if !f.conn.quota.fits(f.came + f.size + n) {
			return status.New(status.ResourceExhausted, refused) // no wait makes room for it
		}
		return status.Passing("%s", refused)
	}
	f.size += n
	f.charged += more
	return nil
}

// end gives back what the request was charged with.
func (f *foreign) end() {
	if f.charged != 0 {
		f.conn.quota.giveRequest(f.charged)
	}
	f.size, f.charged, f.err = 0, 0, nil
}
