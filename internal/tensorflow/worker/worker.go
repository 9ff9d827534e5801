// Package worker implements TensorFlow's WorkerService for this process. It serves requests
// of masters and of other workers, and is independent of the transport.
//
//	Worker ── sessions ─┬─ session ── place   name and devices of this process in it
//	                    │     ├────── state   variables, shared or its own, and random generators (graph.State)
//	                    │     ├────── peers   of a propagated cluster; else those of the process
//	                    │     └────── graphs ── parts, one for each device ── graph.Executor
//	                    └─ steps ── the session that owns each, until CleanupGraph
//
// RunGraph begins a step in the rendezvous with the place and the peers of its session, puts its
// feeds there, runs the executors of all parts, and takes its fetches. The first error ends the
// step; the cause is reported, what follows from it is marked as derived. A session that ends
// cancels its steps, and frees what it owns when the last of them is over. Sessions of an earlier
// incarnation of a master end when the next one makes its first.
//
// The session of a step says which process a name in a key is, since a master may propagate a
// cluster of its own. So with mutual TLS a receive that comes before its step begins waits with a
// rendezvous.Guard (receivers.go).
//
// RecvTensor has two kinds of requesters. A request of a Tryst peer has RecvOptions with the
// id of its receive; its response comes from the response cache, and may be requested
// again. Any other peer, such as TensorFlow, gets the value from the rendezvous, once. With
// cache_rpc_response the response cache serves these peers, too, by their request ids.
package worker

import (
	"context"
	"maps"
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/collective"
	"github.com/tryst-rdma/tryst/internal/wiresize"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
	"github.com/tryst-rdma/tryst/transport"
)

// memoryLimit is the memory in bytes that GetStatus reports for a CPU device: TensorFlow's
// default. Nothing enforces it.
const memoryLimit = 256 << 20

// noXLAID is the index among all devices of the cluster that GetStatus reports: TensorFlow's
// number for a device without one. 0 would be the index of a device.
const noXLAID = -1

// Options configures a Worker. Task, Incarnation, Manager and Cache are needed.
type Options struct {
	// Task is the name of this process. Incarnation is the random number that it chose at
	// its start; its device CPU:0 has the same incarnation.
	Task        cluster.Task
	Incarnation uint64
	// Session has the devices of this process, with their incarnations, as the Manager has
	// them; that of one device, CPU:0, when nil.
	Session *rendezvous.Session
	// Manager has the steps.
	Manager *rendezvous.Manager
	// Cache is the response cache, which takes its values from the same Manager.
	Cache transport.ResponseCache
	// CacheRPCResponse caches responses also for peers that are not Tryst, by their request
	// ids and until their MarkRecvFinished.
	CacheRPCResponse bool
	// MaxWaiting is how many receives of peers that are not Tryst may wait per host;
	// transport.DefaultMaxWaiting when 0.
	MaxWaiting int
	// MaxWaitingBytes bounds the bytes of the keys of these receives;
	// transport.DefaultMaxWaitingBytes when 0.
	MaxWaitingBytes int64

	// Kernels runs the graphs that masters register. With nil the worker refuses sessions and
	// graphs.
	Kernels graph.KernelSet
	// Allocator provides the memory of feeds and of what kernels compute; tensor.Heap when nil.
	Allocator tensor.Allocator
	// RecordBytes bounds what one recording (Record) reserves of it in bytes; no limit but that of Allocator when 0.
	RecordBytes int64
	// Cluster returns that of the process at present, whose names the keys have: it says at which host a task is. Nil
	// when no task has an address.
	Cluster func() *cluster.Spec
	// Left reports whether a task has left it: nothing is for such a task. Nil where none leaves.
	Left func(cluster.Task) bool
	// Places returns where the tasks of a cluster are that a master propagates. Needed with NewPeers
	// if callers have certificates.
	Places func(*cluster.Spec) map[cluster.Task]cluster.Place
	// NewPeers reaches the tasks of a cluster that a master propagates to a session, under the
	// name self. With nil such a session is refused.
	NewPeers func(self cluster.Task, spec *cluster.Spec) (Peers, error)
	// Limits bound what masters can make the worker hold.
	Limits Limits
	// Print, if not nil, shows what a node of a step prints, for a stream as TensorFlow names it.
	Print func(step int64, node, stream, text string)
	// Collectives runs collective operations; with nil they are refused. Close does not close it.
	Collectives *collective.Collectives
}

// Worker implements transport.Worker. It is safe for concurrent use.
type Worker struct {
	opts    Options
	session *rendezvous.Session // of the process
	recent  *recentIDs
	waiting *quota
	// recentBufs are the requests of RecvBuf.
	recentBufs *recentIDs
	// options counts the options of RecvTensor before they are parsed.
	options wiresize.Scanner

	// The rest is for graphs, and nil without Kernels.
	sessions       *sessions
	recentRuns     *recentIDs
	recentPartials *recentIDs
	workers        *graph.Workers // of all steps
	counts         counts
	records        *records // not nil
	// compile is compileGraph; tests replace it.
	compile func(*session, *tfpb.GraphDef) ([]part, error)
	// compiling has an entry for each graph that is being made ready to run.
	compiling chan struct{}
}

// New returns a worker. One with Kernels needs Close.
func New(o Options) *Worker {
	if o.MaxWaiting == 0 {
		o.MaxWaiting = transport.DefaultMaxWaiting
	}
	if o.MaxWaitingBytes == 0 {
		o.MaxWaitingBytes = transport.DefaultMaxWaitingBytes
	}
	if o.Session == nil {
		o.Session = rendezvous.NewSession(o.Task, o.Incarnation, 1)
	}
	if o.Allocator == nil {
		o.Allocator = tensor.Heap{}
	}
	o.Limits = o.Limits.withDefaults()
	w := &Worker{
		opts:    o,
		session: o.Session,
		recent:  newRecentIDs("RecvTensor (GrpcWorker)", recentWindow),
		waiting: newQuota(o.MaxWaiting, o.MaxWaitingBytes),
		records: newRecords(o.Allocator, o.RecordBytes),
	}
	if o.Collectives != nil {
		w.recentBufs = newRecentIDs("RecvBuf (GrpcWorker)", recentWindow)
	}
	if o.Kernels != nil {
		w.workers = graph.NewWorkers(0)
		w.compile, w.compiling = w.compileGraph, make(chan struct{}, maxCompiling)
		w.sessions = newSessions(&w.opts)
		w.sessions.cleanUp = w.EndStep
		w.recentRuns = newRecentIDs("RunGraph (Worker)", recentWindow)
		w.recentPartials = newRecentIDs("PartialRunGraph (Worker)", recentWindow)
	}
	return w
}

// Close ends all sessions and the steps that they run, and waits for them. Later calls for
// sessions and graphs end with Aborted. It may be called more than once.
func (w *Worker) Close() {
	w.records.close()
	if w.sessions != nil {
		w.sessions.close()
	}
}

// GetStatus lists the devices of this process.
func (w *Worker) GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	resp := new(tfpb.GetStatusResponse)
	devices := slices.SortedFunc(maps.Keys(w.session.Devices), func(a, b cluster.Device) int { return a.Index - b.Index })
	for _, d := range devices {
		resp.DeviceAttributes = append(resp.DeviceAttributes, &tfpb.DeviceAttributes{
			Name:        d.String(),
			DeviceType:  d.Type,
			MemoryLimit: memoryLimit,
			Locality:    &tfpb.DeviceLocality{},
			Incarnation: w.session.Devices[d],
			XlaGlobalId: noXLAID,
		})
	}
	return resp, nil
}

// CleanupGraph ends a step. Its receives end with Aborted, and its cached responses are
// released.
func (w *Worker) CleanupGraph(_ context.Context, req *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error) {
	if err := checkStep("CleanupGraph", req.GetStepId()); err != nil {
		return nil, err
	}
	w.EndStep(req.GetStepId())
	return &tfpb.CleanupGraphResponse{}, nil
}

// EndStep is CleanupGraph for callers in this process.
func (w *Worker) EndStep(step int64) {
	if w.sessions != nil {
		w.sessions.endStep(step)
	}
	if w.opts.Collectives != nil {
		w.opts.Collectives.EndStep(step)
	}
	w.opts.Manager.Cleanup(step)
	w.opts.Cache.EndStep(step)
}

// defaultContainer has the variables whose nodes name no container.
const defaultContainer = "localhost"

// CleanupAll drops the variables of containers, or of the default container when the request names
// none. As in TensorFlow, those of isolated sessions stay.
func (w *Worker) CleanupAll(_ context.Context, req *tfpb.CleanupAllRequest) (*tfpb.CleanupAllResponse, error) {
	if w.sessions != nil {
		containers := req.GetContainer()
		if len(containers) == 0 {
			containers = []string{defaultContainer}
		}
		w.sessions.reset(containers)
	}
	return &tfpb.CleanupAllResponse{}, nil
}

// MarkRecvFinished releases cached responses: those in finished for a Tryst peer, which sends
// its name and incarnation, and that of request_id for any other peer.
func (w *Worker) MarkRecvFinished(_ context.Context, req *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error) {
	if a := (transport.Process{Name: req.GetRequester(), Incarnation: req.GetRequesterIncarnation()}); a != (transport.Process{}) {
		w.opts.Cache.Ack(a, req.GetFinished())
	} else if id := req.GetRequestId(); id != 0 {
		w.opts.Cache.Ack(transport.Process{}, []uint64{uint64(id)})
	}
	return &tfpb.MarkRecvFinishedResponse{}, nil
}

// invalid returns the error of an invalid request.
func invalid(format string, args ...any) error {
	return status.Errorf(status.InvalidArgument, format, args...)
}
