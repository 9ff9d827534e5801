package server

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/server/internal/overview"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// startWatch starts what finds out, while somebody reads the status, which peers are silent. It asks them over gRPC, whatever their
// route: an RDMA device answers for a process that is stopped, and so does the kernel's TCP.
func (s *Server) startWatch() *overview.Watch {
	return overview.StartWatch(overview.WatchOptions{Signs: s.signs, Probe: s.conns.Ask})
}

// signs returns the peers that can be asked: those to which a gRPC connection of this process is up. Others are not judged.
func (s *Server) signs() []overview.Sign {
	values := make(map[cluster.Task]uint64)
	if s.rdma != nil {
		s.rdma.Transport.Traffic(func(t verbstransport.Traffic) { values[t.Task] = t.Received })
	}
	var all []overview.Sign
	for _, p := range s.conns.Peers() {
		if p.Up && p.Task != s.task {
			all = append(all, signOf(p, values[p.Task]))
		}
	}
	return all
}

// signOf returns the sign of a peer. When its last value came over verbs is not known, only how many have.
func signOf(p grpctransport.PeerState, values uint64) overview.Sign {
	sign := overview.Sign{Peer: p.Task, Heard: p.HeardAt.UnixNano() + int64(values)} //nolint:gosec // only its changes count
	if values == 0 {
		sign.At = p.HeardAt
	}
	return sign
}

// setSilent makes a peer silent.
func setSilent(p *statusapi.Peer, now time.Time, quiet overview.Quiet) {
	p.State, p.Since = statusapi.PeerSilent, quiet.Since
	least := ""
	if quiet.Longer {
		p.Since, least = time.Time{}, "at least "
	}
	p.Error = fmt.Sprintf("nothing has come for %s%.1f s, and a probe is not answered: its process is stopped (SIGSTOP, a debugger) or gets no processor, or the path to it is lost", least, now.Sub(quiet.Since).Seconds())
}
