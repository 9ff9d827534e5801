package server

import (
	"context"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// telemetry is the tracing of a process. The zero value traces nothing and adds no
// instrumentation.
type telemetry struct {
	provider *sdktrace.TracerProvider
}

func newTelemetry(ctx context.Context, c config.OTel, name string) (telemetry, error) {
	if c.Endpoint == "" {
		return telemetry{}, nil
	}
	opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(c.Endpoint)}
	if c.Insecure {
		opts = append(opts, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return telemetry{}, status.Errorf(status.InvalidArgument, "otel.endpoint %s: %w", c.Endpoint, err)
	}
	return telemetry{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.SampleRatio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "tryst"), attribute.String("service.instance.id", name))),
	)}, nil
}

func (t telemetry) options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
	}
}

// serverHandler returns the instrumentation of a server, or nil.
func (t telemetry) serverHandler() stats.Handler {
	if t.provider == nil {
		return nil
	}
	return otelgrpc.NewServerHandler(t.options()...)
}

// clientHandler returns the instrumentation of connections to peers, or nil.
func (t telemetry) clientHandler() stats.Handler {
	if t.provider == nil {
		return nil
	}
	return otelgrpc.NewClientHandler(t.options()...)
}

// close exports the remaining spans, until ctx ends.
func (t telemetry) close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}
