package tryst

import (
	"context"
	"iter"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Client pulls publications from one server. It needs no port and is in no
// cluster. It is safe for concurrent use.
type Client struct {
	c      *server.Client
	puller *checkpoint.Puller
}

// Manifest says what a publication holds: its files, and of each tensor name,
// type, shape, size and digest.
type Manifest = checkpoint.Manifest

// Dial makes a client of the server at addr: HOST:PORT, or a task of the cluster
// of WithClientConfig. The server need not be up yet; calls tell when it is not.
func Dial(ctx context.Context, addr string, opts ...Option) (*Client, error) {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	cfg := config.Config{Client: o.client}
	cfg.FillDefaults()
	if err := cfg.Validate(config.ForClient); err != nil {
		return nil, err
	}
	c, err := server.Dial(ctx, cfg.Client, addr, o.Options)
	if err != nil {
		return nil, err
	}
	return &Client{c: c, puller: c.Puller()}, nil
}

// List returns the server's publications, by name.
func (c *Client) List(ctx context.Context) ([]Publication, error) { return c.puller.List(ctx) }

// Describe returns what a publication holds. An empty name means the only one
// that the server has.
func (c *Client) Describe(ctx context.Context, name string) (*Manifest, error) {
	return c.puller.Describe(ctx, name, "")
}

// PullOption narrows or tunes a pull.
type PullOption func(*checkpoint.PullRequest)

// Tensors pulls only the tensors whose names match one of the patterns, in which
// * stands for any characters and ? for one. A pattern that matches none is
// NotFound.
func Tensors(patterns ...string) PullOption {
	return func(r *checkpoint.PullRequest) { r.Tensors = append(r.Tensors, patterns...) }
}

// Version pulls that version of the publication, and fails with NotFound when
// the server has another one. By default it is the current one.
func Version(v string) PullOption {
	return func(r *checkpoint.PullRequest) { r.Version = v }
}

// Inflight is how many tensors are received at once.
func Inflight(n int) PullOption {
	return func(r *checkpoint.PullRequest) { r.Inflight = n }
}

// Pull receives the tensors of a publication, named, in the order of its
// manifest, each with its digest checked, while later ones are under way. The
// caller releases each tensor; leaving the loop ends the pull and releases the
// rest. An error is the last pair, with a nil tensor. An empty name means the
// only publication that the server has.
func (c *Client) Pull(ctx context.Context, name string, opts ...PullOption) iter.Seq2[*tensor.Tensor, error] {
	r := checkpoint.PullRequest{Publication: name}
	for _, opt := range opts {
		opt(&r)
	}
	return c.puller.Pull(ctx, r)
}

// Close ends what is under way with Cancelled and returns when nothing of the
// client is left.
func (c *Client) Close(ctx context.Context) error { return c.c.Close(ctx) }
