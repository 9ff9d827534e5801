package master

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// Options configures a session. The zero value is valid.
type Options struct {
	// Self is the name and incarnation of this process. A worker that sees the name again with
	// another incarnation deletes the sessions of the one before. Without it, sessions of a process
	// that ended without Close stay at the worker.
	Self Peer
	// Isolate gives the session variables of its own. Without it all sessions of a worker share them.
	Isolate bool
	// ServerDef, if not nil, is passed to the worker in place of one with its job and task.
	ServerDef *tfpb.ServerDef
}

// Session is a session at one worker. It is safe for concurrent use.
type Session struct {
	worker  transport.Worker
	handle  string
	devices []Peer
	status  []*tfpb.DeviceAttributes
	nodes   atomic.Int64 // numbers the nodes of its graphs
}

// Open opens a session at a worker. Close must end it.
func Open(ctx context.Context, worker transport.Worker, o Options) (*Session, error) {
	st, err := worker.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		return nil, err
	}
	s := &Session{worker: worker, status: st.GetDeviceAttributes(), handle: fmt.Sprintf("%016x", rand.Uint64())}
	for _, d := range st.GetDeviceAttributes() {
		device, err := cluster.ParseDevice(d.GetName())
		if err != nil {
			return nil, status.From(err).WithPrefix("master: GetStatus: device of the worker: ")
		}
		s.devices = append(s.devices, Peer{device, d.GetIncarnation()})
	}
	if len(s.devices) == 0 {
		return nil, status.New(status.Internal, "master: GetStatus: the worker reports no devices; a worker has at least CPU:0")
	}
	task := s.devices[0].Device.Task
	def := o.ServerDef
	if def == nil {
		def = &tfpb.ServerDef{Protocol: "grpc", JobName: task.Job, TaskIndex: int32(task.Index), Replica: int32(task.Replica)}
	}
	request := &tfpb.CreateWorkerSessionRequest{SessionHandle: s.handle, ServerDef: def, IsolateSessionState: o.Isolate}
	if o.Self != (Peer{}) {
		request.MasterTask, request.MasterIncarnation = o.Self.Device.Task.String(), int64(o.Self.Incarnation)
	}
	if _, err := worker.CreateWorkerSession(ctx, request); err != nil {
		return nil, err
	}
	return s, nil
}

// Devices returns the devices of the worker; at least one. The caller must not change the slice.
func (s *Session) Devices() []Peer { return s.devices }

// Attributes returns what the worker reports of its devices, in the order of Devices: types, memory in bytes,
// localities. The caller must not change them.
func (s *Session) Attributes() []*tfpb.DeviceAttributes { return s.status }

// Close ends the session, and with it its graphs; its variables too if it is isolated.
func (s *Session) Close(ctx context.Context) error {
	_, err := s.worker.DeleteWorkerSession(ctx, &tfpb.DeleteWorkerSessionRequest{SessionHandle: s.handle})
	return err
}
