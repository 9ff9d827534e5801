package grpctransport

import (
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// ConnsOptions configures the connections of one process.
type ConnsOptions struct {
	// Self is the task of this process, and Local its own worker; nil when it has none.
	Self  cluster.Task
	Local transport.Worker
	// Spec has the tasks of the cluster, until SetSpec. Resolve, if not nil, returns the addresses of
	// tasks that are not in it.
	Spec    *cluster.Spec
	Resolve func(cluster.Task) (address string, ok bool)
	// Left reports whether a task without an address has left the cluster; nil where none leaves. It is called with
	// locks held.
	Left func(cluster.Task) bool
	// Renamed says that the names in Spec are those of a session: peers know themselves by others.
	// Otherwise a peer with another name is a mistake in the addresses.
	Renamed bool
	// Allocator allocates the memory of received tensors; tensor.Heap when nil.
	Allocator tensor.Allocator
	// Log records each RecvTensor; nil for no log.
	Log *transport.Log
	// Disconnected is called when a connection to a task has ended, for each task with its address;
	// nil for nothing. It must not block.
	Disconnected func(cluster.Task)
	// Idle is how long buffers may be unused before they are freed; 0 means idle.DefaultTime.
	Idle time.Duration
	// Dial configures each connection.
	Dial DialOptions
	// Responses is what the bytes of responses are reserved from while they come and until they are parsed, and
	// what they become when they are decompressed and parsed; nil for no limit. A response beyond it ends its call
	// with ResourceExhausted.
	Responses tensor.Reserver
	// Bounds bounds the connections; nil for no bounds. With Bounds, Disconnected is not called.
	Bounds *Bounds
}

// Conns has the connections to other tasks. A connection is made at its first use and
// shared by all callers. Conns implements transport.WorkerCache and is safe for concurrent
// use.
type Conns struct {
	opts   ConnsOptions
	frames *framePool

	mu       sync.Mutex // guards the fields below
	spec     *cluster.Spec
	peers    map[cluster.Task]*peerConn
	channels map[string]connections // by address: tasks with one address share a channel
	closed   bool
}

// peerConn is the connections and the stub of one task.
type peerConn struct {
	channel *movable
	worker  *RemoteWorker
}

// NewConns returns a Conns. It connects to no task yet.
func NewConns(o ConnsOptions) *Conns {
	if o.Allocator == nil {
		o.Allocator = tensor.Heap{}
	}
	if o.Bounds != nil && o.Bounds.Rest == 0 {
		bounds := *o.Bounds
		bounds.Rest = DefaultRest
		o.Bounds = &bounds
	}
	return &Conns{opts: o, spec: o.Spec, frames: newFramePool(o.Idle), peers: make(map[cluster.Task]*peerConn), channels: make(map[string]connections)}
}

// KeptFrames returns the bytes of the buffers that are kept for the next frames.
func (c *Conns) KeptFrames() int64 { return c.frames.kept() }

// Worker implements transport.WorkerCache. It returns the same Worker each time for a task.
func (c *Conns) Worker(task cluster.Task) (transport.Worker, error) {
	if task == c.opts.Self && c.opts.Local != nil {
		return c.opts.Local, nil
	}
	p, err := c.peer(task)
	if err != nil {
		return nil, err
	}
	return p.worker, nil
}

// Conn returns the connection to a task, for services other than the worker's. It spreads
// its calls over the TCP connections to the task and encodes them with this package's codec.
// It may be used until Close, and moves with the task (SetSpec).
func (c *Conns) Conn(task cluster.Task) (grpc.ClientConnInterface, error) {
	p, err := c.peer(task)
	if err != nil {
		return nil, err
	}
	return p.channel, nil
}

// Tasks implements transport.WorkerCache.
func (c *Conns) Tasks() []cluster.Task {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.spec.Tasks()
}

// addressLocked finds the address of a task.
func (c *Conns) addressLocked(task cluster.Task) (address string, ok bool) {
	address, ok = c.spec.Address(task)
	if !ok && c.opts.Resolve != nil {
		address, ok = c.opts.Resolve(task)
	}
	return address, ok
}

func (c *Conns) peer(task cluster.Task) (*peerConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, errConnsClosed()
	}
	if p := c.peers[task]; p != nil {
		return p, nil
	}
	address, ok := c.addressLocked(task)
	if !ok && c.opts.Left != nil && c.opts.Left(task) {
		return nil, transport.TaskLeft(task)
	}
	if !ok {
		return nil, status.Errorf(status.NotFound, "the cluster has no task %v", task)
	}
	ch, err := c.channelLocked(address)
	if err != nil {
		return nil, err
	}
	at := newMovable(ch)
	p := &peerConn{channel: at, worker: &RemoteWorker{conn: at, alloc: c.opts.Allocator, log: c.opts.Log}}
	if !c.opts.Renamed {
		p.worker.task = task
	}
	c.peers[task] = p
	return p, nil
}

// channelLocked returns the connections to an address, which tasks there share.
func (c *Conns) channelLocked(address string) (connections, error) {
	if ch := c.channels[address]; ch != nil {
		return ch, nil
	}
	ch, err := c.connect(address)
	if err == nil {
		c.channels[address] = ch
	}
	return ch, err
}

func errConnsClosed() error {
	return status.New(status.Cancelled, "the connections of this process are closed")
}

// connect returns the connections to an address.
func (c *Conns) connect(address string) (connections, error) {
	if b := c.opts.Bounds; b != nil {
		return &resting{address: address, bounds: b, number: max(c.opts.Dial.Connections, 1), dial: func() (*channel, error) {
			return dial(address, c.opts.Dial, c.frames, c.opts.Responses, nil)
		}}, nil
	}
	return dial(address, c.opts.Dial, c.frames, c.opts.Responses, func() { c.disconnected(address) })
}

// disconnected reports that a connection to an address has ended.
func (c *Conns) disconnected(address string) {
	if c.opts.Disconnected == nil {
		return
	}
	c.mu.Lock()
	var tasks []cluster.Task
	for task, p := range c.peers {
		if p.channel.at() == address {
			tasks = append(tasks, task)
		}
	}
	c.mu.Unlock()
	for _, task := range tasks {
		c.opts.Disconnected(task)
	}
}

// Close closes all connections. Calls in progress end with Cancelled.
func (c *Conns) Close() error {
	c.mu.Lock()
	channels := c.channels
	c.closed = true
	c.peers, c.channels = nil, nil
	c.mu.Unlock()
	var errs []error
	for _, ch := range channels {
		errs = append(errs, ch.close()) // without the lock, which disconnected takes
	}
	return errors.Join(errs...)
}
