package server

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// Options are arguments of Start and Dial that are not settings. The zero value is valid.
type Options struct {
	// Logger receives the log; nil discards it.
	Logger *slog.Logger
	// Registerer receives the metrics. The metrics address serves it if it is a
	// prometheus.Gatherer, too; otherwise, and if it is nil, the metrics of this
	// server, of the Go runtime and of the process.
	Registerer prometheus.Registerer
	// Allocator allocates the memory that tensors are received into and that
	// files are read into. Nil makes a tensor.Pool.
	Allocator tensor.Allocator
	// Provider has the devices for verbs. Nil takes the provider that the
	// settings name.
	Provider verbs.Provider
	// ServerStats observes the calls that a Server accepts, and ClientStats those
	// that the process makes, for example for traces. Nil observes nothing.
	ServerStats, ClientStats stats.Handler
	// Kernels runs the graphs that TensorFlow masters register with a Server. With nil they are
	// refused.
	Kernels graph.KernelSet
	// Listening is called by Start with the address of the listener, before it accepts
	// anything. An error ends the start. Nil does nothing.
	Listening func(net.Addr) error
	// Prepare is called by Start after the server accepts calls and before it
	// reports that it is ready, through its health service and the address
	// file. Publish here. An error ends the start. Nil does nothing.
	Prepare func(context.Context, *Server) error

	// LimitHeap lets the process's soft limit of memory (debug.SetMemoryLimit) follow what it uses outside the Go
	// heap, unless GOMEMLIMIT is set. It is for the program of one server.
	LimitHeap bool

	memory     int64               // of this process; 0: that which it may use
	clientTask func() cluster.Task // draws the task of a client; nil: cluster.ClientTask
	fixed      []devices.Source    // of devices over TCP and shared memory; nil: those of this host

	incarnation uint64 // of the process; 0 draws one
}

// node is what a Server and a Client have in common.
type node struct {
	task        cluster.Task
	incarnation uint64
	place       *rendezvous.Session // its devices
	log         *slog.Logger
	registry    prometheus.Registerer
	gatherer    prometheus.Gatherer // of the metrics address
	metrics     *metrics
	allocator   tensor.Allocator
	pool        *tensor.Pool // the allocator, unless the program passed one
	budget      *budget
	transfers   *transport.Log
	lateWorker  atomic.Pointer[worker.Worker] // that of a server, which is made after its node; nil in a client
	heap        *heapRelease
	self        *ownWorker
	conns       *grpctransport.Conns
	transport   *grpctransport.RpcRemoteRendezvous

	// For the peers of sessions, which are the process's own but for their names.
	spec         *cluster.Spec
	dial         grpctransport.DialOptions
	peerTimeout  time.Duration
	releaseAfter time.Duration

	loss    *loss.Watch
	rdma    *rdma // nil without verbs
	cache   *transport.ResponseCache
	manager *rendezvous.Manager
}

// nodeConfig are the arguments of newNode that differ between a Server and a Client.
type nodeConfig struct {
	task cluster.Task
	// resolve returns the address of a peer that is not in the cluster spec. Nil
	// if there are none.
	resolve func(cluster.Task) (string, bool)
	// localAddr returns the address by which peers reach the process, and the reason for it. It may
	// change with the network. Nil: not known.
	localAddr func(context.Context) (netip.Addr, string)
	// addresses are those at which peers dial the process, as "host:port"; none for a
	// process that only dials.
	addresses []string
	// dial connects to a peer for a queue pair over TCP. newNode sets it.
	dial func(ctx context.Context, address string) (net.Conn, error)
	// sendBound is the bound of SendWait.
	sendBound int64
	// devices is the number of CPU devices; 0 means 1.
	devices int
	// budget has the parts of the memory, and the settings fit them.
	budget config.Budget
	// cache has the limits of the response cache.
	cache transport.CacheOptions
}

// listens reports whether the process is a server.
func (nc *nodeConfig) listens() bool { return nc.resolve == nil }

// lateManager is a Manager that is set later: the response cache needs it and is built first.
type lateManager struct{ *rendezvous.Manager }

// newNode makes a node. The worker of a server is set later (node.self).
func newNode(ctx context.Context, nc nodeConfig, c config.Client, o Options) (_ *node, err error) {
	task := nc.task
	n := &node{
		task: task, incarnation: cmp.Or(o.incarnation, cluster.NewIncarnation()),
		log: o.Logger, allocator: o.Allocator,
	}
	n.registry, n.gatherer = registries(o.Registerer)
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.metrics = newMetrics(n.log)
	n.budget = newBudget(nc.budget, c, o, n.log)
	n.addBudget(n.budget)
	if n.allocator == nil {
		n.allocator, n.pool = n.budget.common, n.budget.common
		n.addPool(n.pool)
	}
	security, err := certificates.ClientTLS(c.TLS)
	if err != nil {
		return nil, err
	}
	certificates.WarnOutOfDates(n.log, c.TLS)
	n.loss = loss.NewWatch(n.log)
	dial := grpctransport.DialOptions{
		Connected: n.loss.TCP.Add, Credentials: certificates.ClientCredentials(security), Connections: c.ConnectionsPerPeer,
		KeepaliveTime: c.Keepalive.Time, KeepaliveTimeout: c.Keepalive.Timeout,
	}
	nc.dial = func(ctx context.Context, address string) (net.Conn, error) {
		return dial.ConnectVerbs(ctx, address, security)
	}
	if o.ClientStats != nil {
		dial.Extra = append(dial.Extra, grpc.WithStatsHandler(o.ClientStats))
	}
	n.spec, n.dial, n.peerTimeout, n.releaseAfter = c.Cluster, dial, c.PeerTimeout, c.ReleaseAfter
	n.heap = newHeapRelease(c.ReleaseAfter)
	n.transfers = transport.NewLog(transferLog, func(t transport.Transfer) {
		n.metrics.received.observe(t)
		if w := n.lateWorker.Load(); w != nil {
			w.Transferred(t)
		}
		n.heap.used()
		n.loss.Touch()
	})
	n.self = new(ownWorker)
	n.conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: task, Local: n.self, Spec: c.Cluster, Resolve: nc.resolve,
		Allocator: n.allocator, Log: n.transfers, Dial: dial, Idle: c.ReleaseAfter, Disconnected: n.checkPeer,
	})
	n.addKept()
	n.transport = grpctransport.New(grpctransport.Options{
		Self: n.process(), Conns: n.conns, PeerTimeout: c.PeerTimeout, Logger: n.log,
	})
	session := rendezvous.NewSession(task, n.incarnation, nc.devices)
	n.place = session
	late := new(lateManager)
	nc.cache.Addressed, nc.cache.Verify = n.conns.Addressed, n.conns.Incarnation
	n.cache = transport.NewResponseCache(late, nc.cache)
	if c.Transport == verbstransport.Name {
		if n.rdma, err = n.openRDMA(ctx, c, o, nc, n.checkSource); err != nil {
			n.cache.Close()
			return nil, errors.Join(err, n.closeGRPC(ctx))
		}
	}
	n.metrics.calling = n.loss.Touch
	n.metrics.all = append(n.metrics.all, n.loss.Collectors()...)
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: session, Remoter: n.remoter(), SendBound: nc.sendBound})
	late.Manager = n.manager
	n.metrics.gauge("tryst_steps", "Steps that have not ended.", func() float64 { return float64(n.manager.Steps()) })
	return n, nil
}

// ownWorker is the worker of this process. The connections need it and are made first.
type ownWorker struct{ transport.Worker }

func (n *node) process() transport.Process {
	return transport.Process{Name: n.task.String(), Incarnation: n.incarnation}
}

// Received returns how many tensors this process has received from others, for each transport.
func (n *node) Received() map[string]int { return n.metrics.received.byTransport() }

// checkSource checks a key that a peer requests. A server checks the names of its sessions, too.
func (n *node) checkSource(key rendezvous.Key) error {
	if w := n.lateWorker.Load(); w != nil {
		return w.CheckSource(key)
	}
	return n.place.CheckSource(key)
}

// remoter returns the transport that receives from peers.
func (n *node) remoter() transport.Transport {
	if n.rdma != nil {
		return n.rdma.transport
	}
	return n.transport
}

// close undoes newNode: receives from peers end with Cancelled, then the connections are
// closed. Pending acks and cancels are sent to peers until ctx ends.
func (n *node) close(ctx context.Context) error {
	var err error
	n.loss.Stop()
	if n.rdma != nil {
		err = n.rdma.stop(ctx)
	}
	n.cache.Close()
	n.manager.Close()
	err = errors.Join(err, n.closeGRPC(ctx))
	if n.rdma != nil {
		err = errors.Join(err, n.rdma.close())
	}
	return err
}

// trim gives back what the pool keeps for the next tensors. Blocks that the program releases later
// go back after release-after.
func (n *node) trim() {
	if n.pool != nil {
		n.pool.Trim()
	}
}

func (n *node) closeGRPC(ctx context.Context) error {
	return errors.Join(n.transport.Close(ctx), n.conns.Close())
}
