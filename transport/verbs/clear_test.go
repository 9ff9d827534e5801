package verbstransport_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// TestRDMAInClearIsOneWarning: a process with TLS says once that RDMA is in clear, when tensors go over
// it; one without TLS, and one whose tensors go over TCP, say nothing.
func TestRDMAInClearIsOneWarning(t *testing.T) {
	const line = `level=WARN msg="tensors over RDMA are neither secret nor authentic, although TLS is set`
	for name, c := range map[string]struct {
		tls   verbstransport.TLS
		fixed []verbs.LinkLayer
		want  int
	}{
		"RDMA with TLS":     {tls: verbstransport.MutualTLS, want: 1},
		"RDMA without":      {tls: verbstransport.NoTLS},
		"a better one, too": {tls: verbstransport.MutualTLS, fixed: []verbs.LinkLayer{verbs.LinkTCP, verbs.LinkShared}},
	} {
		t.Run(name, func(t *testing.T) {
			var all logs
			o := quick(clusterOptions{fixed: c.fixed})
			o.tune = func(task cluster.Task, o *verbstransport.Options) {
				o.TLS, o.Backoff = c.tls, gateBackoff
				o.Logger = slog.New(slog.NewTextHandler(logOf{&all, task.Index}, nil))
			}
			s := newStage(t, o)
			from, to := s.pair()
			from.exchange(to, 1)
			if c.want > 0 {
				s.until("the warning", func() bool { return strings.Contains(all.of(0), line) && strings.Contains(all.of(1), line) })
			}
			third := s.start(2)
			from.meets(third)
			from.exchange(third, 2)
			s.until("the second peer is logged", func() bool { return strings.Contains(all.of(0), "task:2 generation") })
			if n := strings.Count(all.of(0), line); n != c.want {
				t.Errorf("%d warnings, want %d:\n%s", n, c.want, all.of(0))
			}
		})
	}
}
