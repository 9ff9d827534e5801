package server

import (
	"context"

	"github.com/tryst-rdma/tryst/server/internal/calls"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// makeGRPC makes the server for calls, which has no services yet.
func (s *Server) makeGRPC(set calls.Settings) (err error) {
	t := &set.Tuning
	t.RequestBytes, t.Copies, t.Connections, t.Refused, t.Logger = s.memory.Requests, s.memory.Copies, s.budget.Connections(), s.listeners.Turned.Inc, s.log
	s.grpc, err = calls.New(calls.Options{Settings: set, Acceptor: s.acceptor(), Unary: s.metrics.Calls.Unary, Stream: s.metrics.Calls.Stream})
	return err
}

// register registers the services, and then the metrics of all parts.
func (s *Server) register(unaryLimit int64) error {
	grpctransport.Register(s.grpc.Server, grpctransport.ServiceOptions{
		Self: s.process(), Worker: s.metrics.Calls.Worker(s.worker, s.members.Spec), Cache: s.cache, UnaryLimit: unaryLimit,
		Host: s.hostOf, Version: func() uint64 { return s.members.Now().Version() }, LeftGeneration: s.leftGeneration(),
	})
	if s.rdma != nil {
		s.rdma.Register(s.grpc.Server)
	}
	s.catalog.Register(s.grpc.Register())

	s.metrics.Calls.Active = s.heap.Used
	s.metrics.Add(s.listeners.Collectors()...)
	s.metrics.Kept.Add("response_cache", "not_acknowledged", func() int64 { return s.cache.Stats().Bytes })
	s.metrics.Kept.Add("file_cache", "next_pull", s.catalog.Cached)
	s.metrics.Gauge("tryst_requesters", "Processes that send requests here, or did recently.", func() float64 { return float64(s.cache.Stats().Requesters) })
	s.metrics.Gauge("tryst_connected_requesters", "Requesters that have a connection.", func() float64 { return float64(s.cache.Stats().Connected) })
	s.metrics.Gauge("tryst_waiting_receives", "Requests of Tryst peers that wait for their value.", func() float64 { return float64(s.cache.Stats().Waiting) })
	s.metrics.Gauge("tryst_cached_responses", "Responses in the response cache: those that the requester has not acknowledged yet.", func() float64 { return float64(s.cache.Stats().Kept) })
	s.metrics.Gauge("tryst_cached_response_bytes", "Content of the responses in the response cache, in bytes.", func() float64 { return float64(s.cache.Stats().Bytes) })
	s.metrics.Gauge("tryst_unreceived_bytes", "What steps that use SendWait have sent and their receivers do not have yet, in bytes.", func() float64 { n, _ := s.manager.Unreceived(); return float64(n) })
	s.metrics.Gauge("tryst_waiting_sends", "Calls of SendWait that wait for space within send-bound.", func() float64 { _, n := s.manager.Unreceived(); return float64(n) })
	s.metrics.Graphs(s.worker)
	s.metrics.Requests(&s.grpc.Requests)
	s.metrics.Gauge("tryst_publications", "Publications that the server offers.", func() float64 { return float64(len(s.catalog.List())) })
	s.metrics.Gauge("tryst_pulls", "Pulls in progress.", func() float64 { return float64(s.catalog.Pulls()) })
	return s.metrics.Register(s.registry)
}

// stopGRPC waits for the calls in progress, until ctx ends. It does not wait for the handlers of calls
// that were cut off while their kernels go on computing.
func (s *Server) stopGRPC(ctx context.Context) error {
	s.grpc.End(ctx, func() bool { return s.kernels })
	if s.accepting {
		<-s.serving
	}
	return nil
}
