package grpctransport

import (
	"context"
	"log/slog"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip" // a TensorFlow client may compress: RPCOptions.compression_algorithm
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

const (
	// capsKey is the header with a client's capabilities beyond TensorFlow's messages,
	// separated by commas.
	capsKey = "tryst-caps"
	// capChunks is the capability to take large tensors in chunks.
	capChunks = "chunks"
)

// ServiceOptions configures the services of one process. All fields but
// UnaryLimit, Host, Version and LeftGeneration are needed.
type ServiceOptions struct {
	// Self is the name and incarnation of this process, which Hello returns.
	Self transport.Process
	// Worker implements TensorFlow's methods.
	Worker transport.Worker
	// Cache is the response cache, which the Worker uses, too.
	Cache transport.ResponseCache
	// UnaryLimit is the size in bytes above which a client that accepts chunks gets a
	// tensor in chunks; DefaultUnaryLimit when 0.
	UnaryLimit int64
	// Host returns the host of a task's address in the cluster; ok is false for a task
	// without an address. Under mutual TLS a certificate for this host covers the task's
	// name (package identity). Nil when no task has an address.
	Host func(cluster.Task) (host string, ok bool)
	// Version counts the changes of what Host returns: names are checked again after one. Nil where it does not change.
	Version func() uint64
	// LeftGeneration checks the channel generation that a requester reports to have left
	// for gRPC. The server calls leave after the request has passed all checks and before
	// the Worker looks up its value. From then on requests of that generation, or of an
	// earlier one, are ignored (ARCHITECTURE.md section 6, rule c). Nil when gRPC is the
	// only transport.
	LeftGeneration func(requester transport.Process, generation uint64) (leave func(), err error)
}

// Register adds WorkerService, Peers and Chunks to a server that was made with
// ServerOptions. Errors of the Worker reach the client with their code, payloads and up to
// 3 KiB of text, as between TensorFlow's workers.
func Register(s grpc.ServiceRegistrar, o ServiceOptions) {
	if o.UnaryLimit == 0 {
		o.UnaryLimit = DefaultUnaryLimit
	}
	svc := &service{ServiceOptions: o}
	svc.extra, _ = anypb.New(&trystpb.RecvExtra{SenderIncarnation: o.Self.Incarnation}) // a number always encodes
	s = Guard(s)
	s.RegisterService(workerService(svc), svc)
	trystgrpc.RegisterPeersServer(s, svc)
	trystgrpc.RegisterChunksServer(s, svc)
}

// service implements the three services.
type service struct {
	ServiceOptions
	trystgrpc.UnimplementedPeersServer
	trystgrpc.UnimplementedChunksServer
	extra *anypb.Any // the RecvExtra of every response without a ticket
}

// ServerTuning configures the connections of a server. A zero duration is gRPC's default.
type ServerTuning struct {
	// Credentials are the TLS credentials; nil for no TLS.
	Credentials credentials.TransportCredentials
	// KeepaliveTime is how long a connection may be idle before the server sends an HTTP/2
	// ping. Without a reply within KeepaliveTimeout the server closes the connection.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MaxWaiting is the Worker's limit of waiting receives per peer;
	// transport.DefaultMaxWaiting when 0. A connection may have as many calls at once, and
	// extraStreams more.
	MaxWaiting int
	// MaxGraph is the largest message of RegisterGraph and RunGraph in bytes, which have constants
	// and feeds; that of all other messages, when 0.
	MaxGraph int64
	// RequestBytes bounds what all requests under way take, in bytes: from their first byte to the end
	// of their calls, with what they become when they are parsed. Those of one address may take three
	// quarters of it. Eight times MaxGraph, and at least 256 MiB, when 0.
	RequestBytes int64
	// Requests gets what the requests under way take; nil for nothing.
	Requests *RequestStats
	// PerPeer bounds the bytes of unsent responses on one connection;
	// transport.DefaultKeptPerRequester when 0.
	PerPeer int64
	// Total bounds the bytes of unsent responses on all connections; the connections of one
	// address may have half of it. No limit when 0.
	Total int64
	// OutOfDates returns how the certificate of this process is not valid now, such as "it has expired",
	// or "". A client that refuses it does not say so. Nil for no such reason.
	OutOfDates func() string
	// Copies bounds the copied bytes among the unsent responses on all connections. No limit when 0.
	Copies int64
	// Connections bounds the accepted connections in all; those of one address may be half of it. No limit but that
	// of one address when 0.
	Connections int
	// Refused, when not nil, is called for each connection that is refused by a limit.
	Refused func()
	// Logger logs refused connections, which get no error of gRPC; nil for no log.
	Logger *slog.Logger
	// Handshakes gets the connections under handshake, which can be ended when the server stops;
	// nil for none.
	Handshakes *Handshakes
	// Shared takes the connections of queue pairs, which come by its Listener; nil for a port of
	// gRPC alone.
	Shared *SharedPort
}

// ServerOptions returns the options that Register needs: codec, message sizes, windows,
// limits, and credentials that track connections, so that the response cache learns when a
// requester's last connection ends. Do not pass grpc.Creds in addition.
func ServerOptions(t ServerTuning) []grpc.ServerOption {
	creds := t.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	if t.MaxWaiting == 0 {
		t.MaxWaiting = transport.DefaultMaxWaiting
	}
	quotas := newQuotas(t)
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(serverCodec{newCodec(), quotas.largest}),
		grpc.RPCDecompressor(laterGzip{}), //nolint:staticcheck // the only decompressor of a server that is not registered globally
		grpc.MaxRecvMsgSize(int(quotas.largest)),
		grpc.MaxHeaderListSize(requestHeaders),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.WriteBufferSize(writeBuffer),
		grpc.ReadBufferSize(serverReadBuffer),
		grpc.InitialWindowSize(requestWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxConcurrentStreams(uint32(min(t.MaxWaiting, math.MaxInt32)) + extraStreams), //nolint:gosec // within its range
		grpc.ConnectionTimeout(connectMax),
		grpc.Creds(trackedCredentials{creds, quotas, t.Handshakes, t.Shared}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: t.KeepaliveTime, Timeout: t.KeepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
	}
}

// callerOf returns the caller of ctx's call.
func callerOf(ctx context.Context) (c transport.Caller) {
	if p, ok := peer.FromContext(ctx); ok {
		c.Address = p.Addr.String()
	}
	is := callersOf(ctx)
	c.Share, c.Covers = is.share, is.covers
	for _, v := range metadata.ValueFromIncomingContext(ctx, capsKey) {
		for word := range strings.SplitSeq(v, ",") {
			c.Chunks = c.Chunks || strings.TrimSpace(word) == capChunks
		}
	}
	return c
}

// method returns the description of a unary method that f implements. f gets a context with
// the Caller. It returns status errors, which method turns into gRPC's.
func method[Req any](serviceName, name string, f func(context.Context, *Req) (any, error)) grpc.MethodDesc {
	full := "/" + serviceName + "/" + name
	answer := func(ctx context.Context, req *Req) (any, error) {
		resp, err := f(transport.WithCaller(ctx, callerOf(ctx)), req)
		if err != nil {
			return nil, toGRPC(ctx, err)
		}
		return resp, nil
	}
	return grpc.MethodDesc{
		MethodName: name,
		Handler: func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			req := new(Req)
			if err := dec(req); err != nil {
				return nil, err
			}
			if interceptor == nil {
				return answer(ctx, req)
			}
			var made any
			resp, err := interceptor(ctx, req, &grpc.UnaryServerInfo{Server: srv, FullMethod: full},
				func(ctx context.Context, req any) (resp any, err error) {
					r, ok := req.(*Req)
					if !ok {
						return nil, toGRPC(ctx, status.Errorf(status.Internal, "%s: an interceptor replaced the request by a %T", full, req))
					}
					made, err = answer(ctx, r)
					return made, err
				})
			if d, ok := made.(interface{ drop() }); ok && (err != nil || resp != made) {
				d.drop() // the interceptor replaced it
			}
			return resp, err
		},
	}
}
