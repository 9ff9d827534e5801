package server

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/tryst-rdma/tryst/checkpoint"
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Client is a process that only receives. It is in no cluster spec, dials, and
// needs no port: its task is /job:client with a random number. It talks to one
// server and is safe for concurrent use.
type Client struct {
	*node
	target    string
	conn      grpc.ClientConnInterface
	gate      *connectGate       // nil when all goes over gRPC
	closeGate context.CancelFunc // ends the waits at the gate
	closed    sync.Once
	result    error // of Close
}

// serverTask stands for the server behind an address whose name is not known
// yet: connections are found by task.
var serverTask = cluster.Task{Job: "server"}

// Dial makes a client of the server at target: HOST:PORT, or a task of the
// cluster. It does not wait for a server that is not there; the first call does. One
// that is there is asked whether the name of the client is free.
func Dial(ctx context.Context, c config.Client, target string, o Options) (*Client, error) {
	draw := o.clientTask
	if draw == nil {
		draw = cluster.ClientTask
	}
	for tries := 1; ; tries++ {
		cl, err := dialAs(ctx, draw(), c, target, o)
		if err != nil {
			return nil, err
		}
		if err = cl.hello(ctx); status.CodeOf(err) != status.AlreadyExists {
			return cl, nil // whatever else is wrong the first call finds out
		}
		_ = cl.Close(ctx) // nothing is under way yet
		if tries == maxNameTries {
			return nil, err
		}
	}
}

const (
	// maxNameTries is how many names a client draws. They have 31 random bits: one that is
	// taken is rare, and two in a row mean that something else is wrong.
	maxNameTries = 4
	// helloTimeout bounds the question whether a name is free, for a server whose host
	// swallows packets.
	helloTimeout = 300 * time.Millisecond
)

// hello says Hello to a server that is there.
func (c *Client) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	_, err := trystgrpc.NewPeersClient(c.conn).Hello(ctx, &trystpb.HelloRequest{Asker: c.task.String(), AskerIncarnation: c.incarnation})
	if s := grpcstatus.Convert(err); s.Code() != codes.OK {
		return status.New(status.Code(s.Code()), transport.PlainText(s.Message())).WithPrefix(c.target)
	}
	return nil
}

// dialAs is Dial under a name.
func dialAs(ctx context.Context, task cluster.Task, c config.Client, target string, o Options) (*Client, error) {
	address, _, _, err := cluster.ResolveTarget(c.Cluster, target)
	if err != nil {
		return nil, err
	}
	// Whatever the server calls itself, it is behind this address.
	c.Cluster = nil
	nc := nodeConfig{task: task, resolve: func(cluster.Task) (string, bool) { return address, true }}
	if c.Transport == verbstransport.Name {
		nc.localAddr = routedLocalAddr(ctx, serverTask, address)
	}
	n, err := newNode(ctx, nc, c, o)
	if err != nil {
		return nil, err
	}
	cl := &Client{node: n, target: address, closeGate: func() {}}
	if n.rdma != nil {
		cl.gate = &connectGate{transport: n.rdma.transport}
		cl.gate.ctx, cl.closeGate = context.WithCancel(context.Background())
	}
	if cl.conn, err = n.conns.Conn(serverTask); err == nil {
		err = n.metrics.register(n.registry)
	}
	if err != nil {
		cl.closeGate()
		_ = cl.close(ctx) // nothing is under way yet
		return nil, status.From(err)
	}
	return cl, nil
}

// Target returns the address of the server.
func (c *Client) Target() string { return c.target }

// Task returns the name of this process, and Incarnation the random number that
// it chose.
func (c *Client) Task() cluster.Task { return c.task }

// Incarnation returns the random number that this process chose at its start.
func (c *Client) Incarnation() uint64 { return c.incarnation }

// Conn returns the connection to the server, for its services. It belongs to
// the client.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// RecvAsync receives from the server in one of its steps; see
// rendezvous.Rendezvous. With the transport verbs the first receives wait for the
// channel, a second at most.
func (c *Client) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc) {
	receive := func() { c.manager.Find(step).RecvAsync(ctx, key, rendezvous.Args{}, done) }
	if c.gate == nil {
		receive()
		return
	}
	c.gate.after(key.Src().Task, receive)
}

// Recv is RecvAsync that waits. Over verbs its caller polls for its own value and is
// handed nothing: it takes less time than a callback.
func (c *Client) Recv(ctx context.Context, step int64, key rendezvous.Key) (rendezvous.Value, error) {
	if c.gate != nil {
		c.gate.wait(ctx, key.Src().Task)
	}
	return c.manager.Find(step).Recv(ctx, key, rendezvous.Args{})
}

// Received counts the tensors that came, by the transport that brought them.
func (c *Client) Received() map[string]int { return c.metrics.received.byTransport() }

// Verbs returns the device that verbs has here; false when all goes over gRPC, by the
// settings or for want of a device.
func (c *Client) Verbs() (Selection, bool) {
	if c.rdma == nil {
		return Selection{}, false
	}
	return c.rdma.Selection, true
}

// Probe finds out whether the server, whose task is given, is reached by RDMA; see
// verbstransport.Transport.Probe. FailedPrecondition: this process has no verbs.
func (c *Client) Probe(ctx context.Context, task cluster.Task) (verbstransport.Probed, error) {
	if c.rdma == nil {
		return verbstransport.Probed{}, status.New(status.FailedPrecondition, "this process has no verbs: its transport is another, or there is no device; the log says why")
	}
	return c.rdma.transport.Probe(ctx, task)
}

// EndStep forgets a step.
func (c *Client) EndStep(step int64) { c.manager.Cleanup(step) }

// Puller pulls the server's publications. It lives as long as the client.
func (c *Client) Puller() *checkpoint.Puller {
	return checkpoint.NewPuller(checkpoint.PullerOptions{
		Conn: c.conn, Task: c.task, Incarnation: c.incarnation, Receiver: c,
	})
}

// Transfers returns the last receives, the oldest first.
func (c *Client) Transfers() []transport.Transfer { return c.transfers.Transfers() }

// Close ends what is under way with Cancelled and returns when nothing of the
// client is left. What is to be said to the server is said as long as ctx lives.
func (c *Client) Close(ctx context.Context) error {
	c.closed.Do(func() {
		if c.gate != nil {
			c.closeGate()
			c.gate.close()
		}
		c.result = c.close(ctx)
		c.metrics.unregister(c.registry)
	})
	return c.result
}
