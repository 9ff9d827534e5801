package telemetry_test

import (
	"context"
	"net"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/telemetry"
	"github.com/tryst-rdma/tryst/server"
)

// collector is an OTLP collector that counts spans by name.
type collector struct {
	collectorpb.UnimplementedTraceServiceServer
	mu    sync.Mutex
	names map[string]int
}

func (c *collector) Export(_ context.Context, req *collectorpb.ExportTraceServiceRequest) (*collectorpb.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range req.GetResourceSpans() {
		for _, s := range r.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				c.names[span.GetName()]++
			}
		}
	}
	return &collectorpb.ExportTraceServiceResponse{}, nil
}

func TestTracesGoToTheCollector(t *testing.T) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &collector{names: map[string]int{}}
	g := grpc.NewServer()
	collectorpb.RegisterTraceServiceServer(g, c)
	go func() { _ = g.Serve(lis) }()
	defer g.Stop()

	otel := config.OTel{Endpoint: lis.Addr().String(), Insecure: true, SampleRatio: 1}
	traces, err := telemetry.New(t.Context(), otel, "x")
	if err != nil {
		t.Fatal(err)
	}
	cfg := server.Config{}
	cfg.Listen = "127.0.0.1:0"
	s, err := server.Start(t.Context(), cfg, server.Options{ServerStats: traces.Server(), ClientStats: traces.Client()})
	if err != nil {
		t.Fatal(err)
	}
	cl, err := server.Dial(t.Context(), server.Config{}, s.Addr().String(), server.Options{ClientStats: traces.Client()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Puller().List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, close := range []func(context.Context) error{cl.Close, s.Close, traces.Close} { // the last sends what is left
		if err := close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.names["tryst.Publications/List"]; n != 2 {
		t.Errorf("%d spans of the call, want the client's and the server's: %v", n, c.names)
	}
}

func TestNothingIsTracedUnasked(t *testing.T) {
	traces, err := telemetry.New(t.Context(), config.OTel{}, "x")
	if err != nil || traces.Server() != nil || traces.Client() != nil {
		t.Errorf("instrumentation without an exporter: %+v, %v", traces, err)
	}
	if err := traces.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
