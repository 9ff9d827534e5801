package tryst

import (
	"context"
	"iter"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Client pulls publications from one server. It does not listen and is not a task
// of a cluster. It is safe for concurrent use.
type Client struct {
	c      *server.Client
	puller *Puller
}

// Manifest lists the contents of a publication: Entries has the Name, DType, Shape, Bytes and Digest of
// each tensor, Files the files. It must not be changed.
type Manifest = checkpoint.Manifest

// TensorInfo describes a tensor of a publication: name, type, shape, bytes and digest.
type TensorInfo = checkpoint.TensorInfo

// FileInfo describes a file of a publication: name, format, metadata, length and header.
type FileInfo = checkpoint.FileInfo

// Dial makes a client of the server at addr: HOST, which means port 2222, HOST:PORT,
// or a task of the Cluster of cfg. A setting of servers, such as Listen, is InvalidArgument. The server
// need not be up yet; until it is, a Pull waits (see PullRetry), and other calls fail with Unavailable.
func Dial(ctx context.Context, addr string, cfg Config, opts ...Option) (*Client, error) {
	o, err := newOptions(opts)
	if err != nil {
		return nil, err
	}
	if o.ServerStats != nil {
		return nil, status.New(status.InvalidArgument, "WithStatsHandlers: a client accepts no connections; pass nil as the handler for a server")
	}
	c, err := server.Dial(ctx, cfg, addr, o)
	if err != nil {
		return nil, err
	}
	return &Client{c: c, puller: c.Puller()}, nil
}

// List returns the server's publications, by name.
func (c *Client) List(ctx context.Context) ([]Publication, error) { return c.puller.List(ctx) }

// Describe returns the manifest of a publication. An empty name means the only
// publication of the server.
func (c *Client) Describe(ctx context.Context, name string) (*Manifest, error) {
	return c.puller.Describe(ctx, name, "")
}

// Pull receives the tensors of a publication in the order of its manifest. Each
// has its name, and its digest has been checked. Later tensors are received while
// the caller works on one. The caller releases each tensor; leaving the loop ends
// the pull and releases the rest. An error comes as the last pair, with a nil
// tensor. An empty name means the only publication of the server. The options choose
// tensors (PullTensors), the memory (PullInto), and what is reported (OnPulled, Summarize).
func (c *Client) Pull(ctx context.Context, name string, opts ...PullOption) iter.Seq2[*tensor.Tensor, error] {
	r := checkpoint.PullRequest{Publication: name}
	for _, opt := range opts {
		opt(&r)
	}
	return c.puller.Pull(ctx, r)
}

// Version is a version of a publication that Watch has yielded: its Publication, the Tensors, the Summary of the pull,
// Release, and Apply.
type Version = checkpoint.Version

// Watch yields the newest complete version of a publication, and then each newer one, until ctx ends or the loop is left. Each
// comes at most once, in ascending order of the numbers, and its tensors are all of that version. The next one
// is pulled when the loop asks for it, so a slow loop skips versions, and holds back nobody.
//
// It goes on when connections break, when the server restarts, and while there is no publication of this name
// (OnInterruption reports it). A server that has restarted begins another Epoch, whose versions follow
// whatever their numbers are. When an epoch comes back, two servers answer at one address, and
// the watch ends with FailedPrecondition. Files are watched, too, and servers without numbers are asked every second.
//
// A version stays as it is until its Release. There are two sets of memory, of Client.Allocator or those of WatchInto, so
// the loop takes the next version into use, and then releases the one before. While it holds two, Watch waits.
//
//	var serving *tryst.Version
//	for v, err := range c.Watch(ctx, "policy") {
//		if err != nil {
//			return err
//		}
//		serve(v.Tensors)
//		if serving != nil {
//			serving.Release()
//		}
//		serving = v
//	}
func (c *Client) Watch(ctx context.Context, name string, opts ...WatchOption) iter.Seq2[*Version, error] {
	r := WatchRequest{Pull: checkpoint.PullRequest{Publication: name}}
	for _, opt := range opts {
		opt(&r)
	}
	return c.puller.Watch(ctx, r)
}

// WatchOption is an option of Client.Watch.
type WatchOption func(*WatchRequest)

// WatchRequest says what a watch does. The options below set its fields.
type WatchRequest = checkpoint.WatchRequest

// WatchPull passes options to the pull of each version: PullTensors, PullInflight, PullRetry, OnInterruption, OnPulled.
func WatchPull(opts ...PullOption) WatchOption {
	return func(r *WatchRequest) {
		for _, opt := range opts {
			opt(&r.Pull)
		}
	}
}

// WatchWhole receives each version whole, and not as what differs from the one before (docs/versions.md, "Deltas").
func WatchWhole() WatchOption {
	return func(r *WatchRequest) { r.Pull.Whole = true }
}

// WatchInto receives into memory of the caller's, by name, as PullInto does. With two maps a version comes into one while
// the caller has the other. With one map nothing writes to it but Version.Apply, between its call and its return.
// Memory that does not fit, since types or shapes have changed, ends the watch with InvalidArgument.
func WatchInto(maps ...map[string]*tensor.Tensor) WatchOption {
	return func(r *WatchRequest) { r.Into = maps }
}

// WatchState is a watch of this process, while it goes on: what it watches, the version that came last and how, and the newest one.
type WatchState = checkpoint.WatchState

// Watches returns the watches that go on, the oldest first: those of Watch and of Puller.
func (c *Client) Watches() []WatchState { return c.puller.Watches() }

// Puller pulls, as Client.Pull does, and writes the files of a publication: Save, Mirror for the newest version, and Stream for
// an io.Writer.
type Puller = checkpoint.Puller

// Mirrored is a version whose files Puller.Mirror has written.
type Mirrored = checkpoint.Mirrored

// SaveOptions are the arguments of Puller.Save.
type SaveOptions = checkpoint.SaveOptions

// Found is what a pull finds on the disk (SaveOptions.Found).
type Found = checkpoint.Found

// Puller returns the puller of the client, which can also write the files of a publication (Save, and
// Stream for an io.Writer). It is valid until Close.
func (c *Client) Puller() *Puller { return c.puller }

// Done returns a channel that is closed when Close has ended the client. A client does not end by
// itself: it connects again.
func (c *Client) Done() <-chan struct{} { return c.c.Done() }

// Err returns nil until Done is closed, then Cancelled.
func (c *Client) Err() error { return c.c.Err() }

// Close ends the calls in progress with Cancelled. It returns when all goroutines
// of the client have ended.
func (c *Client) Close(ctx context.Context) error { return c.c.Close(ctx) }
