package server

import (
	"context"
	"net"
	"sync"
	"testing"

	collectorpb "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/internal/config"
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
	s, err := Start(t.Context(), settings(func(cfg *config.Config) { cfg.OTel = otel }), Options{})
	if err != nil {
		t.Fatal(err)
	}
	client := config.Default().Client
	client.OTel = otel
	cl, err := Dial(t.Context(), client, s.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Puller().List(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, close := range []func(context.Context) error{cl.Close, s.Close} { // which sends what is left
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
	tel, err := newTelemetry(t.Context(), config.OTel{}, "x")
	if err != nil || tel.serverHandler() != nil || tel.clientHandler() != nil {
		t.Errorf("instrumentation without an exporter: %+v, %v", tel, err)
	}
	if err := tel.close(t.Context()); err != nil {
		t.Error(err)
	}
}
