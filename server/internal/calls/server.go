// Package calls has the gRPC server of a process, with the services that every gRPC server has: health and
// reflection. The parts of the process register the others.
//
//	New ─► services are registered ─► Serve ─► End
package calls

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/internal/certificates"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Settings are what the settings of a process say about calls.
type Settings struct {
	TLS    certificates.Files
	Tuning grpctransport.ServerTuning // the limits of a peer, and keepalive
	Stats  stats.Handler              // observes the calls; may be nil
}

// Options are the arguments of New.
type Options struct {
	Settings
	// Acceptor is a device that takes connections of queue pairs at the same port; nil if none does.
	Acceptor grpctransport.Acceptor
	// Unary and Stream observe the calls of services that are registered.
	Unary  grpc.UnaryServerInterceptor
	Stream grpc.StreamServerInterceptor
}

// Server is the gRPC server of a process.
type Server struct {
	*grpc.Server
	// Requests counts the requests that are parsed.
	Requests grpctransport.RequestStats
	// Port is shared with queue pairs over TCP; nil without them.
	Port *grpctransport.SharedPort

	greets  grpctransport.Handshakes
	health  *health.Server
	watched context.Context //nolint:containedctx // ends when the Watch streams of the health service must end
	unwatch func()
}

// New makes a server, which has no services yet.
func New(o Options) (*Server, error) {
	s := &Server{health: health.NewServer()}
	s.SetServing(false) // until the process is ready
	s.watched, s.unwatch = context.WithCancel(context.Background())
	if o.Acceptor != nil {
		s.Port = grpctransport.NewSharedPort(o.Acceptor)
	}
	creds, err := certificates.ServerCredentials(o.TLS, s.Port != nil)
	if err != nil {
		return nil, err
	}
	t := o.Tuning
	t.Credentials, t.OutOfDates = creds, certificates.OutOfDates(o.TLS)
	t.Handshakes, t.Shared, t.Requests = &s.greets, s.Port, &s.Requests
	opts := append(grpctransport.ServerOptions(t),
		grpc.ChainUnaryInterceptor(o.Unary),
		grpc.ChainStreamInterceptor(ofServices(o.Stream)),
		grpc.UnknownServiceHandler(refuseUnknown),
	)
	if o.Stats != nil {
		opts = append(opts, grpc.StatsHandler(o.Stats))
	}
	s.Server = grpc.NewServer(opts...)
	return s, nil
}

// Register registers health and reflection, and returns the registrar for other services whose calls are rare.
func (s *Server) Register() grpc.ServiceRegistrar {
	rarely := grpctransport.LimitCalls(s.Server)
	healthpb.RegisterHealthServer(rarely, healthServer{s.health, s.watched})
	registerReflection(rarely, s.Server)
	return rarely
}

// SetServing sets what the health service reports.
func (s *Server) SetServing(on bool) {
	state := healthpb.HealthCheckResponse_NOT_SERVING
	if on {
		state = healthpb.HealthCheckResponse_SERVING
	}
	s.health.SetServingStatus("", state)
}

// StopServing has the health service report NOT_SERVING from now on.
func (s *Server) StopServing() { s.health.Shutdown() }

// End waits for the calls in progress, until ctx ends. If abandon then returns true it does not wait for the handlers
// of calls that were cut off.
func (s *Server) End(ctx context.Context, abandon func() bool) {
	s.unwatch()
	s.greets.End() // gRPC would wait for clients that send nothing
	s.Port.End()   // channels have ended
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.Stop()
		if !abandon() {
			<-graceful
		}
	}
}
