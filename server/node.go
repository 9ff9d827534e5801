package server

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/buildinfo"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/loss"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/membership"
	"github.com/tryst-rdma/tryst/server/internal/memory"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/server/internal/overview"
	"github.com/tryst-rdma/tryst/server/internal/peers"
	"github.com/tryst-rdma/tryst/server/internal/rdma"
	"github.com/tryst-rdma/tryst/server/internal/refusals"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
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
	// GraphLimits bounds what the masters make a Server with Kernels keep.
	GraphLimits GraphLimits
	// Listening is called by Start with the address of the listener, before it accepts
	// anything. An error ends the start. Nil does nothing.
	Listening func(net.Addr) error
	// Prepare is called by Start after the server accepts calls and before it
	// reports that it is ready, through its health service and the address
	// file. Publish here. An error ends the start. Nil does nothing.
	Prepare func(context.Context, *Server) error

	// Version is the version of the program, for /api/status and tryst_build_info. Empty: that which the go command has recorded.
	Version string

	// LimitHeap lets the process's soft limit of memory (debug.SetMemoryLimit) follow what it uses outside the Go
	// heap, unless GOMEMLIMIT is set. It is for the program of one server.
	LimitHeap bool

	memory        int64               // of this process; 0: that which it may use
	memoryOfGroup memlimit.Provider   // the limit of its control group; nil: that of this host
	clientTask    func() cluster.Task // draws the task of a client; nil: cluster.ClientTask
	rows          []providers.Row     // the providers; nil: the table, or none but Provider

	incarnation uint64 // of the process; 0 draws one
}

// node is what a Server and a Client have in common.
type node struct {
	task        cluster.Task
	incarnation uint64
	place       *rendezvous.Session // its devices
	log         *slog.Logger
	warnings    *overview.Warnings // of log
	registry    prometheus.Registerer
	gatherer    prometheus.Gatherer // of the metrics address
	metrics     *metrics.Metrics
	refusals    *refusals.Log
	allocator   tensor.Allocator
	pool        *tensor.Pool    // the allocator, unless the program passed one
	memory      memory.Division // of the process
	budget      *memory.Budget
	transfers   *transport.Log
	lateWorker  atomic.Pointer[worker.Worker]      // that of a server, which is made after its node; nil in a client
	lateCatalog atomic.Pointer[checkpoint.Catalog] // that of a server; nil in a client
	heap        *memory.Release
	self        *ownWorker
	conns       *grpctransport.Conns
	transport   *grpctransport.RpcRemoteRendezvous

	parts   parts
	peers   *peers.Part
	members *membership.Members // the cluster

	loss    *loss.Watch
	rdma    *rdma.Part // nil without verbs
	cache   *delivery.ResponseCache
	manager *rendezvous.Manager
}

// newNode makes a node without parts. spec is its cluster; nil without one. cpus is the number of its devices; 0 means 1.
func newNode(task cluster.Task, spec *cluster.Spec, cpus int, o Options) *node {
	n := &node{
		task: task, members: membership.New(task, spec), incarnation: cmp.Or(o.incarnation, cluster.NewIncarnation()), log: o.Logger, allocator: o.Allocator, self: new(ownWorker), warnings: new(overview.Warnings),
	}
	n.registry, n.gatherer = metrics.Registries(o.Registerer)
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	n.log = slog.New(n.warnings.Handler(n.log.Handler()))
	n.place = rendezvous.NewSession(task, n.incarnation, cpus)
	n.refusals = refusals.New(n.log)
	n.metrics = metrics.New()
	n.metrics.AddBuild(buildinfo.Read(o.Version))
	n.metrics.Add(n.refusals.Collectors()...)
	n.metrics.Calls.Ended = n.refusals.Call
	n.loss = loss.NewWatch(n.log)
	return n
}

// divideMemory starts the part that divides the memory of the process.
func (n *node) divideMemory(parts memory.Division, releaseAfter time.Duration, limitHeap bool) error {
	n.memory = parts
	n.budget = memory.New(memory.Options{
		Memory: parts.Memory, Common: parts.Common, ConnectionBytes: parts.Connections, Parts: parts.String(), Excess: parts.Excess(),
		ReleaseAfter: releaseAfter, LimitHeap: limitHeap, Logger: n.log,
	})
	if n.allocator == nil {
		n.allocator, n.pool = n.budget.Pool, n.budget.Pool
	}
	n.budget.AddMetrics(n.metrics, n.pool != nil)
	n.heap = memory.NewRelease(releaseAfter)
	return nil
}

// trim gives back what the pool keeps for the next tensors. Blocks that the program releases later
// go back after release-after.
func (n *node) trim(context.Context) error {
	if n.pool != nil {
		n.pool.Trim()
	}
	return nil
}

// unregister takes the metrics of the process out of the registry.
func (n *node) unregister(context.Context) error {
	n.metrics.Unregister(n.registry)
	return nil
}

// connectPeers starts the part that reaches peers over gRPC, and answers their requests.
func (n *node) connectPeers(set peers.Settings) (err error) {
	n.transfers = transport.NewLog(transferLog, func(t transport.Transfer) {
		n.metrics.Received.Observe(t)
		if w := n.lateWorker.Load(); w != nil {
			w.Transferred(t)
		}
		n.heap.Used()
		n.loss.Touch()
	})
	n.peers, err = peers.Start(peers.Options{
		Settings: set, Task: n.task, Process: n.process(), Local: n.self, Left: n.nameLeft, HasLeft: func(t cluster.Task) bool { return n.members.Now().Left(t) },
		Allocator: n.allocator, Answers: n.budget.Answers,
		Transfers: n.transfers, Connected: n.loss.TCP.Add, Disconnected: n.checkPeer, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.conns, n.transport, n.cache = n.peers.Conns, n.peers.GRPC, n.peers.Cache
	n.metrics.Kept.Add("frames", metrics.ForNext, n.conns.KeptFrames)
	return nil
}

// disconnectPeers stops connectPeers: receives over gRPC end with Cancelled, then the connections are
// closed. Pending acks and cancels are sent to peers until ctx ends.
func (n *node) disconnectPeers(ctx context.Context) error { return n.peers.Close(ctx) }

// openDevices starts the part that has the devices for verbs; without settings there is none. addresses
// returns those at which peers dial the process, as "host:port"; it is nil if they do not.
func (n *node) openDevices(ctx context.Context, set *rdma.Settings, addresses func() []string) (err error) {
	if set == nil {
		return nil
	}
	o := *set
	if o.Fixed.Dial = n.peers.DialVerbs; addresses != nil {
		o.Fixed.Addresses = addresses()
	}
	n.rdma, err = rdma.Open(ctx, rdma.Options{
		Settings: o, Task: n.task, Process: n.process(), Cluster: n.members.Spec, Left: n.left, Host: n.hostOf, Conns: n.conns, GRPC: n.transport, Cache: n.cache,
		CheckSource: n.checkSource, Receiver: n.receiverOf, Refused: n.refusals.Request, Reserve: n.budget.Reserve, GiveBack: n.giveBack,
		Allocator: n.allocator, Transfers: n.transfers, Active: func() { n.loss.Touch(); n.heap.Used() }, Logger: n.log,
	})
	if err != nil {
		return err
	}
	n.rdma.AddMetrics(n.metrics)
	return nil
}

// watchLosses starts the watch of lost packets.
func (n *node) watchLosses(context.Context) error {
	if n.rdma != nil {
		n.loss.WatchDevice(loss.Device{Current: n.rdma.Finder.Current, Counters: n.rdma.Finder.Counters, Connections: n.rdma.Transport.Connections})
	}
	n.metrics.Calls.Began = n.loss.Touch
	n.metrics.Add(n.loss.Collectors()...)
	return nil
}

func (n *node) stopLosses(context.Context) error {
	n.loss.Stop()
	return nil
}

// startSteps starts the part that has the steps. sendBound is the bound of SendWait.
func (n *node) startSteps(sendBound int64) error {
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: n.place, Remoter: n.remoter(), SendBound: sendBound})
	n.peers.Serve(n.manager)
	n.metrics.Gauge("tryst_steps", "Steps that have not ended.", func() float64 { return float64(n.manager.Steps()) })
	return nil
}

// stopSteps returns when no receive and no callback of a step is under way.
func (n *node) stopSteps(context.Context) error {
	n.cache.Close() // it asks the steps for values
	n.manager.Close()
	return nil
}

// closeChannels closes every channel. It notifies peers until ctx ends.
func (n *node) closeChannels(ctx context.Context) error {
	if n.rdma == nil {
		return nil
	}
	return n.rdma.Stop(ctx)
}

// closeDevices closes the devices, after the channels.
func (n *node) closeDevices(context.Context) error {
	if n.rdma == nil {
		return nil
	}
	return n.rdma.Close()
}

// ownWorker is the worker of this process. The connections need it and are made first.
type ownWorker struct{ transport.Worker }

func (n *node) process() transport.Process {
	return transport.Process{Name: n.task.String(), Incarnation: n.incarnation}
}

// Received returns how many tensors this process has received from others, for each transport.
func (n *node) Received() map[string]int { return n.metrics.Received.ByTransport() }

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
		return n.rdma.Transport
	}
	return n.transport
}
