package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// healthServer is the health of a server whose watchers have to go when it stops: they have
// been told that it does not serve any more, and would be waited for.
type healthServer struct {
	*health.Server
	over context.Context //nolint:containedctx // ends when they have to go
}

// Watch implements healthpb.HealthServer.
func (w healthServer) Watch(req *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	defer context.AfterFunc(w.over, cancel)()
	return w.Server.Watch(req, watch{stream, ctx})
}

// watch is one stream of a watcher.
type watch struct {
	grpc.ServerStreamingServer[healthpb.HealthCheckResponse]
	ctx context.Context //nolint:containedctx // the stream's
}

func (w watch) Context() context.Context { return w.ctx }
