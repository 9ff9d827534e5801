package server

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/delivery"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/rdma"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// Client is a process that only receives, from one server. It dials, does not
// listen, and is in no cluster spec: its task is /job:client with a random index.
// It is safe for concurrent use.
type Client struct {
	*node
	target    string
	server    atomic.Pointer[cluster.Task] // the name of the server; nil until it has told it
	conn      grpc.ClientConnInterface
	gate      *rdma.Gate    // nil without verbs, and where nobody has asked for them
	done      chan struct{} // closed at the end of Close
	closed    sync.Once
	result    error // of Close
	callbacks callbacks

	transportSetting string
}

// serverTask stands for the server of a client, whose task is not known before it
// answers. Connections are looked up by task.
var serverTask = cluster.Task{Job: "server"}

// Dial makes a client of the server at target: HOST[:PORT], or a task of the
// cluster. It does not wait for a server that is not up; the first call does. If the
// server is up, Dial checks that the random task of the client is not in use there. Invalid settings, and a
// setting of servers, such as Listen, are InvalidArgument.
func Dial(ctx context.Context, c Config, target string, o Options) (*Client, error) {
	all, err := c.check(config.ForClient, GraphLimits{})
	if err != nil {
		return nil, err
	}
	draw := o.clientTask
	if draw == nil {
		draw = cluster.ClientTask
	}
	for tries := 1; ; tries++ {
		cl, err := dialAs(ctx, draw(), all, target, o)
		if err != nil {
			return nil, err
		}
		if err = cl.hello(ctx); status.CodeOf(err) != status.AlreadyExists {
			return cl, nil // the first call reports any other error
		}
		_ = cl.Close(ctx) // nothing is under way yet
		if tries == maxNameTries {
			return nil, err
		}
	}
}

// hello calls Hello, which fails with AlreadyExists if the task of the client is in use.
func (c *Client) hello(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, helloTimeout)
	defer cancel()
	var trailer metadata.MD
	resp, err := trystgrpc.NewPeersClient(c.conn).Hello(ctx, &trystpb.HelloRequest{Requester: c.task.String(), RequesterIncarnation: c.incarnation}, grpc.Trailer(&trailer))
	if err != nil {
		return grpctransport.CallError(c.target, err, trailer)
	}
	if task, err := cluster.ParseTask(resp.GetName()); err == nil {
		c.server.Store(&task)
	}
	return nil
}

// dialAs is Dial with a given task. The parts start in this order, and stop in the reverse one.
func dialAs(ctx context.Context, task cluster.Task, c complete, target string, o Options) (*Client, error) {
	address, _, _, err := cluster.ResolveTarget(c.spec, target)
	if err != nil {
		return nil, err
	}
	// The server is at this address, whatever its task is.
	c.Cluster, c.spec = nil, nil
	memory := c.divide(o.processMemory(c.Memory), config.ForClient)
	at := reach{
		local:   func(ctx context.Context) (netip.Addr, string) { return listen.RouteTo(ctx, address, "") },
		resolve: func(cluster.Task) (string, bool) { return address, true },
	}
	cl := &Client{node: newNode(task, nil, 0, o), target: address, done: make(chan struct{}), transportSetting: c.Transport}
	devices, err := verbsSettings(&c, at, 0, o, cl.log)
	if err != nil {
		return nil, err
	}
	err = cl.parts.start(ctx,
		part{"memory", func(context.Context) error { return cl.divideMemory(memory, c.ReleaseAfter, o.LimitHeap) }, cl.trim},
		part{"metrics", nil, cl.unregister},
		part{"callbacks", nil, cl.waitForCallbacks},
		part{"peers", func(context.Context) error {
			return cl.connectPeers(peersSettings(&c, at.resolve, delivery.CacheOptions{}, o))
		}, cl.disconnectPeers},
		part{"devices", func(ctx context.Context) error { return cl.openDevices(ctx, devices, nil) }, cl.closeDevices},
		part{"lost packets", cl.watchLosses, cl.stopLosses},
		part{"steps", func(context.Context) error { return cl.startSteps(0) }, cl.stopSteps},
		part{"channels", nil, cl.closeChannels},
		part{"first receives", cl.openGate, cl.closeGate},
		part{"calls", cl.connect, nil},
	)
	if err != nil {
		_ = cl.parts.stop(ctx) // nothing is under way yet
		return nil, err
	}
	return cl, nil
}

// openGate makes the first receives wait for the channel.
func (c *Client) openGate(context.Context) error {
	if c.rdma != nil && !c.rdma.Optional { // the first receives wait at their connection, and not as long
		c.gate = rdma.NewGate(c.rdma.Transport)
	}
	return nil
}

func (c *Client) closeGate(context.Context) error {
	if c.gate != nil {
		c.gate.Close()
	}
	return nil
}

// connect gets the connection to the server, and registers the metrics of all parts.
func (c *Client) connect(context.Context) (err error) {
	if c.conn, err = c.conns.Conn(serverTask); err != nil {
		return status.From(err)
	}
	return c.metrics.Register(c.registry)
}

func (c *Client) waitForCallbacks(context.Context) error {
	c.callbacks.wait()
	return nil
}

// Transport returns the setting transport.
func (c *Client) Transport() string { return c.transportSetting }

// Target returns the address of the server.
func (c *Client) Target() string { return c.target }

// Task returns the task of this client.
func (c *Client) Task() cluster.Task { return c.task }

// Incarnation returns the random number that this process chose at its start.
func (c *Client) Incarnation() uint64 { return c.incarnation }

// Server returns the task of the server.
func (c *Client) Server(ctx context.Context) (cluster.Task, error) {
	var trailer metadata.MD
	r, err := trystgrpc.NewPeersClient(c.conn).Hello(ctx, &trystpb.HelloRequest{Requester: c.task.String(), RequesterIncarnation: c.incarnation}, grpc.Trailer(&trailer))
	if err != nil {
		return cluster.Task{}, grpctransport.CallError(c.target, err, trailer)
	}
	return cluster.ParseTask(r.GetName())
}

// Conn returns the connection to the server, for calls of its services. The client
// owns it.
func (c *Client) Conn() grpc.ClientConnInterface { return c.conn }

// RecvAsync receives from the server in one of its steps; see
// rendezvous.Rendezvous. With the transports verbs and auto the first receives wait for the
// channel, for one second at most. done runs on a goroutine that is not the caller's, as
// that of Server.RecvAsync.
func (c *Client) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc) {
	c.recvAsync(ctx, step, key, rendezvous.Args{}, done)
}

func (c *Client) recvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	receive := func() {
		var returned atomic.Bool // the transport calls done on a goroutine of its own; what fails before may call it here
		defer returned.Store(true)
		c.manager.Find(step).RecvAsync(ctx, key, args, func(v rendezvous.Value, args rendezvous.Args, err error) {
			if returned.Load() {
				done(v, args, err)
				return
			}
			c.callbacks.run(func() { done(v, args, err) })
		})
	}
	if c.gate == nil {
		receive()
		return
	}
	c.gate.Run(key.Src().Task, receive)
}

// Recv is RecvAsync that waits. Over verbs the calling goroutine polls for its own
// value, so Recv has less latency than RecvAsync.
func (c *Client) Recv(ctx context.Context, step int64, key rendezvous.Key) (rendezvous.Value, error) {
	if c.gate != nil {
		c.gate.Wait(ctx, key.Src().Task)
	}
	return c.manager.Find(step).Recv(ctx, key, rendezvous.Args{})
}

// Verbs returns the first of Devices. It returns false when all tensors go over gRPC,
// because of the settings or because there is no usable device at present.
func (c *Client) Verbs() (Selection, bool) {
	if c.rdma == nil {
		return Selection{}, false
	}
	return c.rdma.Selection()
}

// Devices returns all devices that verbs can use at present, that for RDMA first.
func (c *Client) Devices() []Selection {
	if c.rdma == nil {
		return nil
	}
	return c.rdma.Selections()
}

// Probe checks whether RDMA reaches the server, whose task is given; see
// verbstransport.RdmaRemoteRendezvous.Probe. It fails with FailedPrecondition if this process does
// not use verbs.
func (c *Client) Probe(ctx context.Context, task cluster.Task) (verbstransport.Probed, error) {
	if c.rdma == nil {
		return verbstransport.Probed{}, status.New(status.FailedPrecondition, "this process does not use verbs: it has another transport or no usable device; see its log for the reason")
	}
	return c.rdma.Transport.Probe(ctx, task)
}

// EndStep removes a step.
func (c *Client) EndStep(step int64) { c.manager.Cleanup(step) }

// pullReceiver is the client as the receiver of its pulls.
type pullReceiver struct{ c *Client }

// RecvAsync implements checkpoint.Receiver.
func (r pullReceiver) RecvAsync(ctx context.Context, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) {
	r.c.recvAsync(ctx, step, key, args, done)
}

// EndStep implements checkpoint.Receiver.
func (r pullReceiver) EndStep(step int64) { r.c.EndStep(step) }

// Puller pulls the server's publications. It is valid until the client is closed.
func (c *Client) Puller() *checkpoint.Puller {
	return checkpoint.NewPuller(checkpoint.PullerOptions{
		Conn: c.conn, Task: c.task, Incarnation: c.incarnation, Receiver: pullReceiver{c}, Address: c.target,
		Allocator: c.receiveAllocator(),
	})
}

// Transfers returns the most recent receives, the oldest first.
func (c *Client) Transfers() []transport.Transfer { return c.transfers.Transfers() }

// Close ends the calls in progress with Cancelled. It sends pending acks and cancels
// to the server until ctx ends, and returns when all goroutines of the client have ended.
func (c *Client) Close(ctx context.Context) error {
	c.closed.Do(func() {
		c.result = c.parts.stop(ctx)
		close(c.done)
	})
	return c.result
}
