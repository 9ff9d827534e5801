package server

import (
	"context"
	"strings"
	"testing"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/server/internal/overview"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// TestSilentPeerSaysSinceWhen: or that nobody knows it, when it stopped before somebody looked.
func TestSilentPeerSaysSinceWhen(t *testing.T) {
	now := time.Now()
	last := now.Add(-90 * time.Second)
	for text, c := range map[string]struct {
		quiet overview.Quiet
		since time.Time
	}{
		"for 90.0 s":          {overview.Quiet{Since: last}, last},
		"for at least 90.0 s": {overview.Quiet{Since: last, Longer: true}, time.Time{}},
	} {
		p := statusapi.Peer{State: "up", Since: now}
		if setSilent(&p, now, c.quiet); p.State != statusapi.PeerSilent || !p.Since.Equal(c.since) || !strings.Contains(p.Error, text) {
			t.Errorf("%s: %+v", text, p)
		}
	}
}

// TestSignOfAPeer changes with values and with bytes, and has the time of the last bytes where no value came over verbs.
func TestSignOfAPeer(t *testing.T) {
	p := grpctransport.PeerState{HeardAt: time.Now()}
	first, value := signOf(p, 0), signOf(p, 1)
	if !first.At.Equal(p.HeardAt) || !value.At.IsZero() || value.Heard == first.Heard {
		t.Errorf("%+v, %+v", first, value)
	}
	p.HeardAt = p.HeardAt.Add(1)
	if later := signOf(p, 0); later.Heard == first.Heard {
		t.Errorf("%+v, %+v", first, later)
	}
}

// BenchmarkSigns looks at 1,000 peers to which connections are up.
func BenchmarkSigns(b *testing.B) {
	peer, err := Start(b.Context(), settings(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer peer.Close(context.Background())
	c := settings(withMetrics)
	for range 1000 { // itself too, at one address, so that they share a connection
		c.Cluster = map[string][]string{"worker": append(c.Cluster["worker"], peer.Addr().String())}
	}
	s, err := Start(b.Context(), c, Options{})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(context.Background())
	for _, task := range s.members.Spec().Tasks() {
		conn, err := s.conns.Conn(task)
		if err != nil {
			b.Fatal(err)
		}
		if task != s.task && len(s.signs()) == 0 {
			_ = conn.Invoke(b.Context(), healthpb.Health_Check_FullMethodName, new(healthpb.HealthCheckRequest), new(healthpb.HealthCheckResponse))
		}
	}
	if n := len(s.signs()); n < 999 {
		b.Fatalf("%d peers", n)
	}
	for b.Loop() {
		s.signs()
	}
}
