// Package worker is this process as TensorFlow's WorkerService sees it: what a
// master or another worker asks, answered without knowing over which wire it
// came.
//
// RecvTensor is where the two kinds of askers part. A Tryst peer names its
// receives (RecvOptions): its answer comes out of the table of answers, which
// it may ask again. Any other peer, TensorFlow among them, gets its value
// straight from the rendezvous, once; unless cache_rpc_response is on, which
// gives it the same table by its request ids.
package worker

import (
	"context"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// memoryLimit is what a CPU device says that it has: TensorFlow's default for
// one, which nothing enforces.
const memoryLimit = 256 << 20

// Options configures a Worker. All fields but CacheRPCResponse and MaxWaiting
// are needed.
type Options struct {
	// Task is the name of this process, Incarnation the random number that
	// it chose at its start; its device CPU:0 has the same one.
	Task        cluster.Task
	Incarnation uint64
	// Manager holds the steps.
	Manager *rendezvous.Manager
	// Cache has the responses, over the same Manager.
	Cache *transport.ResponseCache
	// CacheRPCResponse keeps answers also for peers that are not Tryst, by
	// their request ids, until they say MarkRecvFinished.
	CacheRPCResponse bool
	// MaxWaiting is how many receives of one address that is not Tryst may
	// wait; transport.DefaultMaxWaiting when 0.
	MaxWaiting int
	// MaxWaitingBytes bounds the keys of these receives;
	// transport.DefaultMaxWaitingBytes when 0.
	MaxWaitingBytes int64
}

// Worker implements transport.Worker. It is safe for concurrent use.
type Worker struct {
	unimplemented
	opts    Options
	session *rendezvous.Session
	recent  *recentIDs
	waiting *quota
}

// New returns a worker with one device, CPU:0.
func New(o Options) *Worker {
	if o.MaxWaiting == 0 {
		o.MaxWaiting = transport.DefaultMaxWaiting
	}
	if o.MaxWaitingBytes == 0 {
		o.MaxWaitingBytes = transport.DefaultMaxWaitingBytes
	}
	return &Worker{
		opts:    o,
		session: Session(o.Task, o.Incarnation),
		recent:  newRecentIDs("RecvTensor (GrpcWorker)", recentWindow),
		waiting: newQuota(o.MaxWaiting, o.MaxWaitingBytes),
	}
}

// Device returns the one device of a task.
func Device(task cluster.Task) cluster.Device {
	return cluster.Device{Task: task, Type: "CPU", Index: 0}
}

// Session returns the session of a task whose only device has the task's
// incarnation.
func Session(task cluster.Task, incarnation uint64) *rendezvous.Session {
	return &rendezvous.Session{Task: task, Devices: map[cluster.Device]uint64{Device(task): incarnation}}
}

// GetStatus lists the devices of this process.
func (w *Worker) GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return &tfpb.GetStatusResponse{DeviceAttributes: []*tfpb.DeviceAttributes{{
		Name:        Device(w.opts.Task).String(),
		DeviceType:  "CPU",
		MemoryLimit: memoryLimit,
		Locality:    &tfpb.DeviceLocality{},
		Incarnation: w.opts.Incarnation,
	}}}, nil
}

// CleanupGraph ends a step: its receives with Aborted, and what is kept of it.
func (w *Worker) CleanupGraph(_ context.Context, req *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error) {
	w.EndStep(req.GetStepId())
	return &tfpb.CleanupGraphResponse{}, nil
}

// EndStep is CleanupGraph for callers in this process.
func (w *Worker) EndStep(step int64) {
	w.opts.Manager.Cleanup(step)
	w.opts.Cache.EndStep(step)
}

// CleanupAll resets containers of variables. There are none yet, so that every
// container that is named is as empty as it should be.
func (w *Worker) CleanupAll(context.Context, *tfpb.CleanupAllRequest) (*tfpb.CleanupAllResponse, error) {
	return &tfpb.CleanupAllResponse{}, nil
}

// MarkRecvFinished lets answers go: one of a peer that is not Tryst, or several
// of one that is, which says so by its incarnation.
func (w *Worker) MarkRecvFinished(_ context.Context, req *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error) {
	if a := (transport.Process{Name: req.GetAsker(), Incarnation: req.GetAskerIncarnation()}); a != (transport.Process{}) {
		w.opts.Cache.Ack(a, req.GetFinished())
	} else if id := req.GetRequestId(); id != 0 {
		w.opts.Cache.Ack(transport.Process{}, []uint64{uint64(id)})
	}
	return &tfpb.MarkRecvFinishedResponse{}, nil
}

// invalid is the error of a request that cannot be right.
func invalid(format string, args ...any) error {
	return status.Errorf(status.InvalidArgument, format, args...)
}
