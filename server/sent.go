package server

import (
	"github.com/tryst-rdma/tryst/cluster"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// sentOver begins to watch a puller. What it returns tells over what the puller has got tensors since:
// "verbs (shm0)", "grpc", or "nothing".
func (s *Server) sentOver(puller cluster.Task) func() string {
	count := func() (verbs uint64, device string, grpc int64) {
		if s.rdma != nil {
			verbs, device = s.rdma.Transport.Sent(puller)
		}
		return verbs, device, s.metrics.Calls.Sent()
	}
	verbs, _, grpc := count()
	return func() string {
		nowVerbs, device, nowGRPC := count()
		switch {
		case nowVerbs > verbs:
			return verbstransport.Name + " (" + device + ")"
		case nowGRPC > grpc: // it may be another puller's, if this one has got nothing
			return grpctransport.Name
		}
		return "nothing"
	}
}

// Sent returns how many tensors this process has sent to others, for each transport. A tensor that
// was sent again, after a break or a change of the transport, counts each time.
func (s *Server) Sent() map[string]int {
	counts := make(map[string]int)
	if n := s.metrics.Calls.Sent(); n > 0 {
		counts[grpctransport.Name] = int(n)
	}
	if s.rdma == nil {
		return counts
	}
	sent := uint64(0)
	for _, c := range s.rdma.Transport.Connections() {
		sent += c.Stats.Sent
	}
	if sent > 0 {
		counts[verbstransport.Name] = int(sent) //nolint:gosec // a count of tensors
	}
	return counts
}
