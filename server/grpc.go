package server

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/internal/certificates"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// grpcOptions are the arguments of makeGRPC.
type grpcOptions struct {
	TLS            certificates.Files
	Keepalive      keepalive
	MaxWaiting     int
	MaxGraph       int64         // bytes of a graph that masters register; 0: none is run
	PerPeer, Total int64         // kept responses, in bytes
	Stats          stats.Handler // observes the calls; may be nil
}

// makeGRPC makes the server for calls, which has no services yet.
func (s *Server) makeGRPC(o grpcOptions) error {
	if a := s.acceptor(); a != nil {
		s.port = grpctransport.NewSharedPort(a)
	}
	creds, err := certificates.ServerCredentials(o.TLS, s.port != nil)
	if err != nil {
		return err
	}
	opts := append(grpctransport.ServerOptions(grpctransport.ServerTuning{
		Credentials: creds, KeepaliveTime: o.Keepalive.Time, KeepaliveTimeout: o.Keepalive.Timeout,
		MaxWaiting: o.MaxWaiting, MaxGraph: o.MaxGraph, PerPeer: o.PerPeer, Total: o.Total, Logger: s.log, Handshakes: &s.greets, Shared: s.port,
		OutOfDates:   certificates.OutOfDates(o.TLS),
		RequestBytes: s.memory.Requests, Requests: &s.requests, Copies: s.memory.Copies, Connections: s.budget.Connections(), Refused: s.listeners.Turned.Inc,
	}),
		grpc.ChainUnaryInterceptor(s.metrics.Calls.Unary),
		grpc.ChainStreamInterceptor(ofServices(s.metrics.Calls.Stream)),
		grpc.UnknownServiceHandler(refuseUnknown),
	)
	if o.Stats != nil {
		opts = append(opts, grpc.StatsHandler(o.Stats))
	}
	s.grpc = grpc.NewServer(opts...)
	return nil
}

// register registers the services, and then the metrics of all parts.
func (s *Server) register(unaryLimit int64) error {
	grpctransport.Register(s.grpc, grpctransport.ServiceOptions{
		Self: s.process(), Worker: s.metrics.Calls.Worker(s.worker, s.spec), Cache: s.cache, UnaryLimit: unaryLimit,
		Host: hostIn(s.spec), LeftGeneration: s.leftGeneration(),
	})
	if s.rdma != nil {
		s.rdma.Register(s.grpc)
	}
	rarely := grpctransport.LimitCalls(s.grpc)
	s.catalog.Register(rarely)
	s.health = health.NewServer()
	s.enter(publishing) // until Start completes
	watched, unwatch := context.WithCancel(context.Background())
	s.unwatch = unwatch
	healthpb.RegisterHealthServer(rarely, healthServer{s.health, watched})
	registerReflection(rarely, s.grpc)

	s.metrics.Calls.Active = s.heap.Used
	s.metrics.Add(s.listeners.Collectors()...)
	s.metrics.Kept.Add("response cache", "not acknowledged by the requester yet, up to kept.per-peer and kept.total", func() int64 { return s.cache.Stats().Bytes })
	s.metrics.Kept.Add("file cache", "kept for the next pull, up to file-cache; freed when unused for twice release-after", s.catalog.Cached)
	s.metrics.Gauge("tryst_requesters", "Processes that send requests here, or did recently.", func() float64 { return float64(s.cache.Stats().Requesters) })
	s.metrics.Gauge("tryst_connected_requesters", "Requesters that have a connection.", func() float64 { return float64(s.cache.Stats().Connected) })
	s.metrics.Gauge("tryst_waiting_receives", "Requests of Tryst peers that wait for their value.", func() float64 { return float64(s.cache.Stats().Waiting) })
	s.metrics.Gauge("tryst_cached_responses", "Responses in the response cache: those that the requester has not acknowledged yet.", func() float64 { return float64(s.cache.Stats().Kept) })
	s.metrics.Gauge("tryst_cached_response_bytes", "Content of the responses in the response cache, in bytes.", func() float64 { return float64(s.cache.Stats().Bytes) })
	s.metrics.Gauge("tryst_unreceived_bytes", "What steps that use SendWait have sent and their receivers do not have yet, in bytes.", func() float64 { n, _ := s.manager.Unreceived(); return float64(n) })
	s.metrics.Gauge("tryst_waiting_sends", "Calls of SendWait that wait for space within send-bound.", func() float64 { _, n := s.manager.Unreceived(); return float64(n) })
	s.metrics.Graphs(s.worker)
	s.metrics.Requests(&s.requests)
	s.metrics.Gauge("tryst_publications", "Publications that the server offers.", func() float64 { return float64(len(s.catalog.List())) })
	s.metrics.Gauge("tryst_pulls", "Pulls in progress.", func() float64 { return float64(s.catalog.Pulls()) })
	return s.metrics.Register(s.registry)
}

// stopGRPC waits for the calls in progress, until ctx ends. It does not wait for the handlers of calls
// that were cut off while their kernels go on computing.
func (s *Server) stopGRPC(ctx context.Context) error {
	if s.unwatch != nil {
		s.unwatch()
	}
	s.greets.End() // gRPC would wait for clients that send nothing
	s.port.End()   // channels have ended
	graceful := make(chan struct{})
	go func() {
		defer close(graceful)
		s.grpc.GracefulStop()
	}()
	select {
	case <-graceful:
	case <-ctx.Done():
		s.grpc.Stop()
		if !s.kernels {
			<-graceful
		}
	}
	if s.accepting {
		<-s.serving
	}
	return nil
}
