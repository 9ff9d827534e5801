package server

import (
	"context"
	"errors"
	"log/slog"
	"math"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/worker"
)

// Options are what a program gives beside the settings. The zero value is
// ready.
type Options struct {
	// Logger is told what happens; nothing when nil.
	Logger *slog.Logger
	// Registry takes the metrics and is what the metrics address serves. Nil
	// makes one, with the metrics of the Go runtime and of the process.
	Registry *prometheus.Registry
	// Allocator gives the memory that tensors arrive in and that files are
	// read into. Nil makes a tensor.Pool.
	Allocator tensor.Allocator
	// Provider is where verbs takes its devices from. Nil takes the one of the
	// settings.
	Provider verbs.Provider
	// Prepare is called by Start when the server answers, and before it says
	// that it is ready: by its health, and by the address file. It is the
	// time to publish. An error ends the start. Nil for nothing to prepare.
	Prepare func(context.Context, *Server) error

	clientTask func() cluster.Task // draws the name of a client; cluster.ClientTask when nil
}

// transferLog is how many transfers a process remembers.
const transferLog = 1024

// node is what a process has whether it listens or only dials.
type node struct {
	task        cluster.Task
	incarnation uint64
	log         *slog.Logger
	registry    *prometheus.Registry
	metrics     *metrics
	allocator   tensor.Allocator
	transfers   *transport.Log
	trace       telemetry
	self        *ownWorker
	conns       *grpctransport.Conns
	transport   *grpctransport.RpcRemoteRendezvous
	rdma        *rdma // nil when all goes over gRPC
	kept        *transport.ResponseCache
	manager     *rendezvous.Manager
}

// place is where a process stands.
type nodeConfig struct {
	task cluster.Task
	// resolve tells where peers listen that are not in the cluster spec; nil
	// when there are none.
	resolve func(cluster.Task) (string, bool)
	// near is by which address peers reach it.
	localAddr localAddr
	// kept are the limits of its table of answers.
	kept transport.CacheOptions
}

// source is the manager as the table of answers asks it, which is made before.
type source struct{ *rendezvous.Manager }

// newNode makes a process. Its own worker comes later (node.self).
func newNode(ctx context.Context, nc nodeConfig, c config.Client, o Options) (_ *node, err error) {
	task := nc.task
	n := &node{
		task: task, incarnation: cluster.NewIncarnation(),
		log: o.Logger, registry: o.Registry, allocator: o.Allocator, metrics: newMetrics(),
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if n.registry == nil {
		n.registry = prometheus.NewRegistry()
		n.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	if n.allocator == nil {
		// A peer that announces more than there is gets an error, and does
		// not make this process ask the system for it.
		pool := tensor.NewPool(tensor.PoolOptions{Limit: memory()})
		n.allocator = pool
		n.metrics.gauge("tryst_pool_used_bytes", "Memory of tensors in use, in bytes.",
			func() float64 { return float64(pool.Stats().InUse) })
		n.metrics.gauge("tryst_pool_kept_bytes", "Memory kept for the next tensors, in bytes.",
			func() float64 { return float64(pool.Stats().Kept) })
	}
	creds, err := clientCredentials(c.TLS)
	if err != nil {
		return nil, err
	}
	if n.trace, err = newTelemetry(ctx, c.OTel, task.String()); err != nil {
		return nil, err
	}
	dial := grpctransport.DialOptions{
		Credentials: creds, Connections: c.ConnectionsPerPeer,
		KeepaliveTime: c.Keepalive.Time, KeepaliveTimeout: c.Keepalive.Timeout,
	}
	if h := n.trace.clientHandler(); h != nil {
		dial.Extra = append(dial.Extra, grpc.WithStatsHandler(h))
	}
	n.transfers = transport.NewLog(transferLog, n.metrics.received.observe)
	n.self = new(ownWorker)
	n.conns = grpctransport.NewConns(grpctransport.ConnsOptions{
		Self: task, Local: n.self, Spec: c.Cluster, Resolve: nc.resolve,
		Allocator: n.allocator, Log: n.transfers, Dial: dial,
	})
	n.transport = grpctransport.New(grpctransport.Options{
		Self: n.process(), Conns: n.conns, PeerTimeout: c.PeerTimeout, Logger: n.log,
	})
	session := worker.Session(task, n.incarnation)
	late := new(source)
	nc.kept.Addressed, nc.kept.Verify = n.conns.Addressed, n.conns.Incarnation
	n.kept = transport.NewKept(late, nc.kept)
	if c.Transport == verbstransport.Name {
		if n.rdma, err = n.openRDMA(c, o.Provider, nc, session.CheckSource); err != nil {
			n.kept.Close()
			return nil, errors.Join(err, n.closeGRPC(ctx))
		}
	}
	n.manager = rendezvous.NewManager(rendezvous.ManagerOptions{Session: session, Remoter: n.remoter()})
	late.Manager = n.manager
	n.metrics.gauge("tryst_steps", "Steps that live.", func() float64 { return float64(n.manager.Steps()) })
	return n, nil
}

// memory returns how many bytes this process may use: what its control group
// allows, or what the machine has; 0 when neither is known.
func memory() int64 {
	m, err := memlimit.ApplyFallback(memlimit.FromCgroup, memlimit.FromSystem)()
	if err != nil {
		return 0
	}
	return int64(min(m, math.MaxInt64))
}

// ownWorker is the worker of this process, for the cache of workers, which is
// needed to make it.
type ownWorker struct{ transport.Worker }

func (n *node) process() transport.Asker {
	return transport.Asker{Name: n.task.String(), Incarnation: n.incarnation}
}

// remoter is what receives from peers.
func (n *node) remoter() transport.Transport {
	if n.rdma != nil {
		return n.rdma.transport
	}
	return n.transport
}

// close ends what newNode began: receives from peers with Cancelled, and then
// the connections. What is to be said to peers is said as long as ctx lives.
func (n *node) close(ctx context.Context) error {
	var err error
	if n.rdma != nil {
		err = n.rdma.stop(ctx)
	}
	n.kept.Close()
	n.manager.Close()
	err = errors.Join(err, n.closeGRPC(ctx))
	if n.rdma != nil {
		err = errors.Join(err, n.rdma.close())
	}
	return err
}

func (n *node) closeGRPC(ctx context.Context) error {
	return errors.Join(n.transport.Close(ctx), n.conns.Close(), n.trace.close(ctx))
}
