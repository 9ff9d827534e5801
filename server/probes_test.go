package server

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
)

// get gets a path of the metrics address, as a kubelet does.
func get(t *testing.T, s *Server, method, path string) (code int, body string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.http.Addr(httpserver.MetricsKey).String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(b)
}

// wantProbes checks both probes, and that gRPC's health service says the same as /readyz.
func wantProbes(t *testing.T, s *Server, when string, ready bool, text string) {
	t.Helper()
	if code, body := get(t, s, http.MethodGet, "/healthz"); code != http.StatusOK || body != "alive\n" {
		t.Errorf("%s: /healthz: got %d, %q", when, code, body)
	}
	code, body := get(t, s, http.MethodGet, "/readyz")
	if (code == http.StatusOK) != ready || !ready && code != http.StatusServiceUnavailable || !strings.Contains(body, text) {
		t.Errorf("%s: /readyz: got %d, %q; want ready %v, %q", when, code, body, ready, text)
	}
	conn, err := grpc.NewClient(s.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, err := healthpb.NewHealthClient(conn).Check(context.Background(), &healthpb.HealthCheckRequest{})
	if err != nil || (h.GetStatus() == healthpb.HealthCheckResponse_SERVING) != ready {
		t.Errorf("%s: gRPC health: got %v, %v; want ready %v", when, h, err, ready)
	}
}

// TestProbes follows a server through its life: it publishes, serves, drains.
func TestProbes(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.MetricsAddress = "127.0.0.1:0" }), Options{
		Prepare: func(_ context.Context, s *Server) error {
			wantProbes(t, s, "while it publishes", false, "publishing")
			return nil
		},
	})
	wantProbes(t, s, "when it serves", true, "ready")
	if code, body := get(t, s, http.MethodHead, "/readyz"); code != http.StatusOK || body != "" {
		t.Errorf("HEAD: got %d, %q", code, body)
	}
	if code, _ := get(t, s, http.MethodPost, "/readyz"); code != http.StatusMethodNotAllowed {
		t.Errorf("POST: got %d", code)
	}
	if code, body := get(t, s, http.MethodGet, "/metrics"); code != http.StatusOK || !strings.Contains(body, "tryst_steps") {
		t.Errorf("/metrics: got %d", code)
	}

	// A pull that has not ended holds the drain.
	x := float(t, 1)
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("w")); err != nil {
		t.Fatal(err)
	}
	x.Release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	conn := dialRaw(t, s.Addr().String())
	pull, err := trystgrpc.NewPublicationsClient(conn).Open(ctx, &trystpb.OpenRequest{Publication: "m", Puller: "/job:client/replica:0/task:17"})
	if err == nil {
		_, err = pull.Recv()
	}
	if err != nil {
		t.Fatal(err)
	}
	health, err := healthpb.NewHealthClient(conn).Watch(ctx, &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	next := func() healthpb.HealthCheckResponse_ServingStatus {
		r, err := health.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStatus()
	}
	if got := next(); got != healthpb.HealthCheckResponse_SERVING {
		t.Fatalf("health: got %v", got)
	}
	closed := make(chan error, 1)
	go func() { closed <- s.Close(context.Background()) }()
	if got := next(); got != healthpb.HealthCheckResponse_NOT_SERVING {
		t.Errorf("health: got %v", got)
	}
	wantProbes(t, s, "while it drains", false, "stopping")
	cancel()
	if err := wait(t, closed, "Close"); err != nil {
		t.Error(err)
	}
}

// TestProbeOfADeadListener: a process that cannot serve any more must be replaced.
func TestProbeOfADeadListener(t *testing.T) {
	s, err := Start(t.Context(), settings(func(c *Config) { c.MetricsAddress = "127.0.0.1:0" }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	s.socket.Close()
	wait(t, s.Done(), "the end of the listener")
	for _, path := range []string{"/healthz", "/readyz"} {
		if code, body := get(t, s, http.MethodGet, path); code != http.StatusServiceUnavailable || !strings.Contains(body, "the listener") {
			t.Errorf("%s: got %d, %q", path, code, body)
		}
	}
	if err := s.Close(context.Background()); err == nil {
		t.Error("Close does not report the listener")
	}
}
