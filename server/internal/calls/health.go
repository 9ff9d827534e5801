package calls

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthServer is a health service whose Watch streams end when the server stops. By then they
// have reported NOT_SERVING, and a graceful stop would wait for them.
type healthServer struct {
	*health.Server
	stop context.Context //nolint:containedctx // ends when the streams must end
}

// Watch implements healthpb.HealthServer.
func (w healthServer) Watch(req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(w.stop, cancel)()
	return w.Server.Watch(req, watchStream{stream, ctx})
}

// watchStream is a stream with another context.
type watchStream struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context //nolint:containedctx // what Context returns
}

func (w watchStream) Context() context.Context { return w.ctx }
