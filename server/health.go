package server

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

// stage is a stage in the life of a server, which only goes forward.
type stage int32

const (
	publishing stage = iota // it accepts calls, and Options.Prepare has not ended
	ready
	stopping
)

// enter begins a stage. gRPC's health service and /readyz report ready as serving, and nothing else.
func (s *Server) enter(now stage) {
	s.stage.Store(int32(now))
	switch now {
	case ready:
		s.health.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
	case stopping:
		s.health.Shutdown()
	default:
		s.health.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
	}
}

// alive returns why the server must be replaced; "" while it is alive, also while it publishes or stops.
func (s *Server) alive() string {
	select {
	case <-s.serving:
		if stage(s.stage.Load()) != stopping {
			return "the listener on " + s.address.String() + " has failed"
		}
	default:
	}
	return ""
}

// ready returns why the server must get no new callers; "" while it is ready for them.
func (s *Server) ready() string {
	switch stage(s.stage.Load()) {
	case publishing:
		return "publishing: the publications are not complete yet"
	case stopping:
		return "stopping: calls in progress may complete"
	default:
		return s.alive()
	}
}
