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

// Option is an argument of Serve and Dial that is not a setting. The functions below make them.
type Option func(*server.Options)

// newOptions applies the options, and chooses the default of the logger.
func newOptions(opts []Option) (server.Options, error) {
	var o server.Options
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
func WithLogger(l *slog.Logger) Option { return func(o *server.Options) { o.Logger = l } }

// WithRegisterer adds the metrics to r until Close, and Config.MetricsAddress serves r if it is a
// prometheus.Gatherer, too, as a Registry is. The names are the same for every server and client: a
// second one with the same Registerer is AlreadyExists. Give each a label of its own:
//
//	tryst.WithRegisterer(prometheus.WrapRegistererWith(prometheus.Labels{"task": "0"}, r))
//
// By default there is no Registerer, and Config.MetricsAddress serves the metrics of this server, of
// the Go runtime and of the process.
func WithRegisterer(r prometheus.Registerer) Option {
	return func(o *server.Options) { o.Registerer = r }
}

// WithAllocator sets the allocator of ordinary memory: what gRPC receives into, and files are read into.
// It is what Server.Allocator returns with gRPC. Over verbs only small tensors and strings are received
// into it, others into registered memory. The default is a tensor.Pool.
func WithAllocator(a tensor.Allocator) Option { return func(o *server.Options) { o.Allocator = a } }

// WithProvider sets the provider of RDMA devices, in place of the one that Config.Provider names. It
// is used with the transport verbs only. docs/providers.md explains how to write one.
func WithProvider(p verbs.Provider) Option { return func(o *server.Options) { o.Provider = p } }

// WithKernels sets the kernels that run the graphs which TensorFlow masters register with a server: those
// of package tensorflow/ops, of a program's own, or of both. Without them graphs are refused.
func WithKernels(set graph.KernelSet) Option { return func(o *server.Options) { o.Kernels = set } }

// WithGraphLimits bounds what these masters make a server with kernels keep.
func WithGraphLimits(l GraphLimits) Option { return func(o *server.Options) { o.GraphLimits = l } }

// WithStatsHandlers instruments gRPC, for example for traces with otelgrpc: accepted sees the calls
// that a server accepts, made those that a server or a client makes. Nil is none. Dial accepts
// nothing, so a handler for a server is InvalidArgument there.
func WithStatsHandlers(accepted, made stats.Handler) Option {
	return func(o *server.Options) { o.ServerStats, o.ClientStats = accepted, made }
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
