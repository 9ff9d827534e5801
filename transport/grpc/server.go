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
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

const (
	// capsKey is the header in which a client says what it takes beyond
	// TensorFlow's messages: words with commas between them.
	capsKey = "tryst-caps"
	// capChunks is the word for large tensors in chunks.
	capChunks = "chunks"
)

// ServiceOptions configures the services of one process. All fields but
// UnaryLimit, Host and LeftGeneration are needed.
type ServiceOptions struct {
	// Self is this process, as Hello names it.
	Self transport.Process
	// Worker answers TensorFlow's methods.
	Worker transport.Worker
	// Cache has the responses; the Worker uses it, too.
	Cache *transport.ResponseCache
	// UnaryLimit is the size in bytes above which a tensor goes in chunks to
	// a client that takes them; DefaultUnaryLimit when 0.
	UnaryLimit int64
	// Host returns the host of the address that the cluster has for a task; ok is
	// false for a task without one. Under mutual TLS it decides which certificate
	// covers the task's name (package identity). Nil where no task has one.
	Host func(cluster.Task) (host string, ok bool)
	// LeftGeneration checks a generation of its other wire that an asker says
	// it has left. leave is called when the request has passed all checks, and
	// before the Worker looks for its value: requests that came over that
	// generation, or one before it, count no more (ARCHITECTURE.md section 6,
	// rule c). Nil where there is no other wire.
	LeftGeneration func(asker transport.Process, generation uint64) (leave func(), err error)
}

// Register adds WorkerService, Peers and Chunks to a server that was made with
// ServerOptions. Errors of the Worker reach the client with code, payloads and
// up to 3 KiB of text, as between TensorFlow's workers.
func Register(s grpc.ServiceRegistrar, o ServiceOptions) {
	if o.UnaryLimit == 0 {
		o.UnaryLimit = DefaultUnaryLimit
	}
	svc := &service{ServiceOptions: o}
	svc.extra, _ = anypb.New(&trystpb.RecvExtra{SenderIncarnation: o.Self.Incarnation}) // a number always encodes
	s.RegisterService(workerService(svc), svc)
	trystgrpc.RegisterPeersServer(s, svc)
	trystgrpc.RegisterChunksServer(s, svc)
}

// service is what the three services are registered with.
type service struct {
	ServiceOptions
	trystgrpc.UnimplementedPeersServer
	trystgrpc.UnimplementedChunksServer
	extra *anypb.Any // the RecvExtra of every answer without a ticket
}

// ServerTuning configures the connections of a server. Zero durations take the
// defaults of gRPC.
type ServerTuning struct {
	// Credentials are those of TLS; none when nil.
	Credentials credentials.TransportCredentials
	// KeepaliveTime is the silence after which a client is probed, and
	// KeepaliveTimeout the wait for its answer before the connection is closed.
	KeepaliveTime, KeepaliveTimeout time.Duration
	// MaxWaiting is how many receives of one peer may wait, as the Worker limits them;
	// transport.DefaultMaxWaiting when 0. A connection has calls for so many, and some more.
	MaxWaiting int
	// PerPeer bounds the bytes of answers under way on one connection;
	// transport.DefaultKeptPerRequester when 0.
	PerPeer int64
	// Total bounds those of all connections, and half of it those of all connections from
	// one address; no limit when 0.
	Total int64
	// Logger has the refusals that no client can be told of; nil for none.
	Logger *slog.Logger
}

// ServerOptions returns what a gRPC server needs for Register: the codec, sizes, windows and
// limits, and credentials that tell when an asker's last connection has ended (so grpc.Creds
// must not be given beside them).
func ServerOptions(t ServerTuning) []grpc.ServerOption {
	creds := t.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	if t.MaxWaiting == 0 {
		t.MaxWaiting = transport.DefaultMaxWaiting
	}
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.WriteBufferSize(writeBuffer),
		grpc.ReadBufferSize(readBuffer),
		grpc.InitialWindowSize(requestWindow),
		grpc.InitialConnWindowSize(connWindow),
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxConcurrentStreams(uint32(min(t.MaxWaiting, math.MaxInt32)) + moreStreams), //nolint:gosec // within its range
		grpc.ConnectionTimeout(connectMax),
		grpc.Creds(tracked{creds, newQuotas(t)}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: t.KeepaliveTime, Timeout: t.KeepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: pingMin, PermitWithoutStream: true}),
	}
}

// callerOf returns who calls.
func callerOf(ctx context.Context) (c transport.Caller) {
	if p, ok := peer.FromContext(ctx); ok {
		c.Address = p.Addr.String()
	}
	for _, v := range metadata.ValueFromIncomingContext(ctx, capsKey) {
		for word := range strings.SplitSeq(v, ",") {
			c.Chunks = c.Chunks || strings.TrimSpace(word) == capChunks
		}
	}
	return c
}

// method returns the description of a unary method that f answers. f gets a
// context that says who called, and its errors are the worker's own.
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
						return nil, toGRPC(ctx, status.Errorf(status.Internal, "%s: an interceptor made %T of the request", full, req))
					}
					made, err = answer(ctx, r)
					return made, err
				})
			if d, ok := made.(interface{ drop() }); ok && (err != nil || resp != made) {
				d.drop() // the interceptor keeps it from being sent
			}
			return resp, err
		},
	}
}
