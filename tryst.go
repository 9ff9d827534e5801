// Package tryst moves tensors between hosts with TensorFlow's rendezvous
// semantics. A producer sends a tensor under a key and does not wait. A consumer
// on another host requests the key, earlier or later, and receives the tensor
// into its own memory. Config.Transport chooses between gRPC and RDMA.
//
// A Server publishes tensors, and exchanges them with the other tasks of its
// cluster:
//
//	s, err := tryst.Serve(ctx, tryst.Config{
//		Listen:    ":2222",
//		Cluster:   map[string][]string{"worker": {"a:2222", "b:2222"}},
//		Task:      "/job:worker/task:0",
//		Transport: "verbs",
//	})
//	_, err = s.Publish(ctx, "gpt2", "gpt2.safetensors") // any number of clients may pull it
//	err = s.Step(1).Send("/job:worker/task:1", "grad", t) // one task receives it, once
//
// A Client pulls publications:
//
//	c, err := tryst.Dial(ctx, "10.0.0.1:2222")
//	for t, err := range c.Pull(ctx, "gpt2") { … }
//
// Errors are *status.Error: a code and one line of text. A Tensor is a counted
// reference to memory that may be outside the Go heap. The caller of a receive or
// a pull must release the tensors that it gets; nothing else frees them.
package tryst

import (
	"context"
	"net"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Publication describes a published set of tensors.
type Publication = checkpoint.Publication

// Server is a task of a cluster, and serves publications. It is safe for
// concurrent use.
type Server struct{ s *server.Server }

// Serve starts a server and returns when it listens. ctx bounds the start only;
// Close ends the server. Invalid settings are InvalidArgument, an address in use
// is Unavailable.
func Serve(ctx context.Context, cfg Config, opts ...Option) (*Server, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.config != nil {
		return nil, status.New(status.InvalidArgument, "WithConfig is an option of Dial; Serve has its Config as an argument")
	}
	settings, err := cfg.settings(config.ForServer)
	if err != nil {
		return nil, err
	}
	s, err := server.Start(ctx, settings, o.Options)
	if err != nil {
		return nil, err
	}
	return &Server{s}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() net.Addr { return s.s.Addr() }

// Task returns the name of this process in the cluster.
func (s *Server) Task() cluster.Task { return s.s.Task() }

// Publish offers the tensors of files under a name to any number of clients,
// until Withdraw or Close. A path is a .safetensors file, the index of a sharded
// checkpoint, a directory that contains one of these, or an .npy file. An empty
// name means the base name of the path. Publish returns when the digests of all
// tensors are computed. The files stay open. When other files are renamed onto
// the names of all of them, the publication gets a new version; Reload takes some
// of several files.
func (s *Server) Publish(ctx context.Context, name string, paths ...string) (Publication, error) {
	return s.s.Catalog().Publish(ctx, name, paths...)
}

// PublishTensors offers tensors in memory, each under the name that
// tensor.Tensor.Named gave it. It takes a reference of its own to each. Their
// memory must not be written to from now on.
func (s *Server) PublishTensors(name string, tensors ...*tensor.Tensor) (Publication, error) {
	return s.s.Catalog().PublishTensors(name, tensors...)
}

// Reload reads the files of all publications again, and takes what has changed as
// a new version. Pulls in progress go on with the old files, except with those that
// were written in place: they get FailedPrecondition. A publication that cannot be
// read, or is being written, stays as it is and is named in the error. Without
// Reload files are taken when they are renamed onto the names of all tensor files
// of a publication.
func (s *Server) Reload(ctx context.Context) error { return s.s.Catalog().Reload(ctx) }

// Withdraw ends a publication.
func (s *Server) Withdraw(name string) error { return s.s.Catalog().Withdraw(name) }

// Done returns a channel that is closed when the server has ended: after Close, or by itself when
// its listener failed, which Err tells. Close it then as well; its receives still work until then.
func (s *Server) Done() <-chan struct{} { return s.s.Done() }

// Err returns nil until Done is closed. Then it returns the reason: Internal with the error of the
// listener, or Cancelled after Close.
func (s *Server) Err() error { return s.s.Err() }

// Close stops gracefully. Pulls and responses in progress may complete until ctx
// ends or the shutdown timeout passes; the error names what was cut off. Close
// returns when all goroutines of the server have ended.
func (s *Server) Close(ctx context.Context) error { return s.s.Close(ctx) }
