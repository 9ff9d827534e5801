package server

// stage is a stage in the life of a server, which only goes forward.
type stage int32

const (
	publishing stage = iota // it accepts calls, and Options.Prepare has not ended
	ready
	stopping
)

// enter begins a stage after publishing. gRPC's health service and /readyz report ready as serving, and nothing else.
func (s *Server) enter(now stage) {
	s.stage.Store(int32(now))
	if now == ready {
		s.grpc.SetServing(true)
	} else {
		s.grpc.StopServing()
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
