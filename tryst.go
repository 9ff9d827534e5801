// Package tryst moves tensors between hosts with TensorFlow's rendezvous
// semantics. A producer puts a tensor under a key and goes on; a consumer on
// another host asks for the key, before or after, and the tensor arrives in its
// memory. Which wire carries it is a setting.
//
// A process that offers something is a Server:
//
//	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"})
//	_, err = s.Publish(ctx, "gpt2", "gpt2.safetensors") // a publication: pulled by anybody
//	err = s.Step(1).Send("/job:worker/task:1", "grad", t) // a tensor of one step, for one task
//
// One that only pulls is a Client:
//
//	c, err := tryst.Dial(ctx, "10.0.0.1:2222")
//	for t, err := range c.Pull(ctx, "gpt2") { … }
//
// Errors are *status.Error: a code, and one line for people. Tensors are counted
// references to memory that may be outside the Go heap: what a receive or a pull
// gives is released by who gets it, and never freed otherwise.
package tryst

import (
	"context"
	"log/slog"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Config is the settings of a server. Zero fields take their defaults; see
// config.Config for each. Settings from flags, environment and file come from
// config.Load.
type Config = config.Config

// Publication describes a published set of tensors.
type Publication = checkpoint.Publication

// Server listens: it is a task of the cluster and a place for publications. It
// is safe for concurrent use.
type Server struct{ s *server.Server }

// Option is something that a program gives beside the settings, to Serve or
// Dial.
type Option func(*options)

type options struct {
	server.Options
	client config.Client
}

// WithLogger says where to tell what happens; by default nowhere.
func WithLogger(l *slog.Logger) Option { return func(o *options) { o.Logger = l } }

// WithRegistry says which registry takes the metrics; by default one of the
// server's or client's own.
func WithRegistry(r *prometheus.Registry) Option { return func(o *options) { o.Registry = r } }

// WithAllocator says where the memory of arriving tensors comes from; by default
// a recycling tensor.Pool.
func WithAllocator(a tensor.Allocator) Option { return func(o *options) { o.Allocator = a } }

// WithClientConfig gives Dial other settings than the defaults: TLS, timeouts,
// the cluster spec. Serve takes them from its Config.
func WithClientConfig(c config.Client) Option { return func(o *options) { o.client = c } }

// Serve listens and returns while it serves. ctx bounds the start only; Close
// ends the server. Settings that are not valid are InvalidArgument, an address
// in use Unavailable.
func Serve(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	cfg.FillDefaults()
	if err := cfg.Validate(config.ForServer); err != nil {
		return nil, err
	}
	s, err := server.Start(ctx, cfg, o.Options)
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.s.Addr() }

// Task returns the name of this process in the cluster.
func (s *Server) Task() cluster.Task { return s.s.Task() }

// Publish offers the tensors of files under a name, to any number of pullers,
// until Withdraw or Close. A path is a .safetensors file, the index of a sharded
// checkpoint, a directory that holds one of these, or an .npy file; an empty
// name means the base name of the path. It returns when the digests of all
// tensors are computed.
func (s *Server) Publish(ctx context.Context, name string, paths ...string) (Publication, error) {
	return s.s.Catalog().Publish(ctx, name, paths...)
}

// PublishTensors offers tensors in memory, each with its tensor.Tensor.Named
// name. It takes a reference of its own to each; nobody writes to their memory
// from now on.
func (s *Server) PublishTensors(name string, tensors ...*tensor.Tensor) (Publication, error) {
	return s.s.Catalog().PublishTensors(name, tensors...)
}

// Withdraw ends a publication.
func (s *Server) Withdraw(name string) error { return s.s.Catalog().Withdraw(name) }

// Close stops gracefully: what peers are taking they may take to its end, as
// long as ctx lives and the shutdown timeout has not passed. It returns when
// nothing of the server is left; the error says what was cut off.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }
