package sessions

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/server/internal/lograte"
	"github.com/tryst-rdma/tryst/server/internal/memory"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// conns bounds the connections to tasks that only sessions know, and what comes over them: whoever may
// register a graph chooses their number and their addresses.
type conns struct {
	log     *slog.Logger
	most    int // in all
	each    int // of one session
	from    tensor.Reserver
	refused prometheus.Counter
	rarely  lograte.Limiter
	lines   lograte.Lines // about the peers of all sessions

	mu   sync.Mutex // guards what follows, and share.open
	open int
}

// share is the part of one session.
type share struct {
	*conns
	open int
}

// newConns returns the bound of a process: a part of its descriptors, and of the memory that tensors share.
func newConns(b *memory.Budget, log *slog.Logger) *conns {
	most := memory.Descriptors() / descriptorsPart
	if b.Memory != 0 {
		most = min(most, b.Common/memoryPart/grpctransport.PeerConnectionBytes)
	}
	most = max(most, memory.LeastConnections)
	return &conns{
		lines: lograte.Lines{Most: linesInAll},
		log:   log, most: int(most), each: int(most - most/othersPart), from: b.Pool,
		refused: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tryst_refused_session_connections_total", Help: "Connections to tasks that only the cluster of a session has which were not made, since there were too many.",
		}),
	}
}

// logger returns the log of the peers of one session.
func (s *conns) logger() *slog.Logger {
	return slog.New(lograte.Handler{Handler: s.log.Handler(), Lines: &lograte.Lines{Most: linesOfSession, Of: &s.lines}})
}

// place takes the places of connections.
func (s *share) place(connections int) (release func(), err error) {
	if reason := s.take(connections); reason != "" {
		return nil, s.refuse(status.New(status.ResourceExhausted, reason))
	}
	memory, err := s.from.Reserve(int64(connections) * grpctransport.PeerConnectionBytes)
	if err != nil {
		s.give(connections)
		return nil, s.refuse(err)
	}
	return func() {
		memory.Release()
		s.give(connections)
	}, nil
}

func (s *share) take(n int) (refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const advice = "; it may have more with more descriptors (ulimit -n, LimitNOFILE) and memory, and any number to tasks in its own cluster (setting cluster)"
	switch {
	case s.conns.open+n > s.most:
		return fmt.Sprintf("this process has %d connections to tasks that only sessions know, of at most %d%s", s.conns.open, s.most, advice)
	case s.open+n > s.each:
		return fmt.Sprintf("the session has %d connections to tasks that only it knows, of at most %d%s", s.open, s.each, advice)
	}
	s.conns.open += n
	s.open += n
	return ""
}

func (s *share) give(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns.open -= n
	s.open -= n
}

func (s *conns) refuse(why error) error {
	s.refused.Inc()
	if not, ok := s.rarely.Now(); ok {
		s.log.Warn("a connection for a session is refused", "reason", why, "not_logged", not)
	}
	return why
}

func (s *conns) connections() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.open)
}
