// Package telemetry exports traces to an OpenTelemetry collector, for the commands. The library
// takes handlers from its importer instead, so that it does not depend on OpenTelemetry.
package telemetry

import (
	"cmp"
	"context"
	"crypto/rand"

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

// Traces is the tracing of a process. The zero value traces nothing and has no instrumentation.
type Traces struct {
	provider *sdktrace.TracerProvider
}

// New connects to the collector of the settings; without one nothing is traced. instance names the
// process in the traces; "" is a random name.
func New(ctx context.Context, c config.OTel, instance string) (Traces, error) {
	if c.Endpoint == "" {
		return Traces{}, nil
	}
	opts := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(c.Endpoint)}
	if c.Insecure {
		opts = append(opts, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(ctx, opts...)
	if err != nil {
		return Traces{}, status.Errorf(status.InvalidArgument, "otel.endpoint %s: %w", c.Endpoint, err)
	}
	return Traces{provider: sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(c.SampleRatio))),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", "tryst"), attribute.String("service.instance.id", cmp.Or(instance, rand.Text())))),
	)}, nil
}

func (t Traces) options() []otelgrpc.Option {
	return []otelgrpc.Option{
		otelgrpc.WithTracerProvider(t.provider),
		otelgrpc.WithPropagators(propagation.TraceContext{}),
	}
}

// Server returns the instrumentation of accepted calls, or nil.
func (t Traces) Server() stats.Handler {
	if t.provider == nil {
		return nil
	}
	return otelgrpc.NewServerHandler(t.options()...)
}

// Client returns the instrumentation of calls to peers, or nil.
func (t Traces) Client() stats.Handler {
	if t.provider == nil {
		return nil
	}
	return otelgrpc.NewClientHandler(t.options()...)
}

// Close exports the remaining spans, until ctx ends. Close the server or client first.
func (t Traces) Close(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}
