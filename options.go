package tryst

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/verbs"
)

// Option is an argument of Serve and Dial that is not a setting.
type Option func(*options)

type options struct {
	server.Options
}

// newOptions applies the options, and chooses the default of the logger.
func newOptions(opts []Option) (options, error) {
	var o options
	for i, opt := range opts {
		if opt == nil {
			return o, status.Errorf(status.InvalidArgument, "option %d is nil; leave it out", i)
		}
		opt(&o)
	}
	if o.Logger == nil {
		o.Logger = slog.New(warnings{slog.Default().Handler()})
	}
	return o, nil
}

// WithLogger sets the logger, whose level decides what is logged. The default is slog.Default() at
// the time of the call, and then only WARN and above: what somebody should act on.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.Logger = l } }

// WithRegisterer adds the metrics to r until Close, and Config.MetricsAddress serves r if it is a
// prometheus.Gatherer, too, as a Registry is. The names are the same for every server and client: a
// second one with the same Registerer is AlreadyExists. Give each a label of its own:
//
//	tryst.WithRegisterer(prometheus.WrapRegistererWith(prometheus.Labels{"task": "0"}, r))
//
// By default there is no Registerer, and Config.MetricsAddress serves the metrics of this server, of
// the Go runtime and of the process.
func WithRegisterer(r prometheus.Registerer) Option { return func(o *options) { o.Registerer = r } }

// WithAllocator sets the allocator of ordinary memory: what gRPC receives into, and files are read into.
// It is what Server.Allocator returns with gRPC. Over verbs only small tensors and strings are received
// into it, others into registered memory. The default is a tensor.Pool.
func WithAllocator(a tensor.Allocator) Option { return func(o *options) { o.Allocator = a } }

// WithProvider sets the provider of RDMA devices, in place of the one that Config.Provider names. It
// is used with the transport verbs only. docs/providers.md explains how to write one.
func WithProvider(p verbs.Provider) Option { return func(o *options) { o.Provider = p } }

// WithKernels sets the kernels that run the graphs which TensorFlow masters register with a server: those
// of package tensorflow/ops, of a program's own, or of both. Without them graphs are refused.
func WithKernels(set graph.KernelSet) Option { return func(o *options) { o.Kernels = set } }

// WithGraphLimits bounds what these masters make a server with kernels keep.
func WithGraphLimits(l GraphLimits) Option { return func(o *options) { o.GraphLimits = l } }

// WithStatsHandlers instruments gRPC, for example for traces with otelgrpc: server sees the calls
// that a server accepts, client those that a server or a client makes. Nil is none. Dial accepts
// nothing, so a handler for a server is InvalidArgument there.
func WithStatsHandlers(server, client stats.Handler) Option {
	return func(o *options) { o.ServerStats, o.ClientStats = server, client }
}

// warnings is a handler that drops what is below WARN.
type warnings struct{ slog.Handler }

// Enabled implements slog.Handler.
func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

// WithGroup implements slog.Handler.
func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
