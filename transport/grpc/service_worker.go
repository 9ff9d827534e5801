package grpctransport

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/transport"
)

// workerService describes TensorFlow's WorkerService over s. It has the methods of the
// generated description; the response of RecvTensor encodes itself.
func workerService(s *service) *grpc.ServiceDesc {
	desc := tensorflowgrpc.WorkerService_ServiceDesc // a copy
	desc.HandlerType = (*any)(nil)
	w := s.Worker
	desc.Methods = []grpc.MethodDesc{
		workerMethod("GetStatus", w.GetStatus),
		workerMethod("CreateWorkerSession", s.createWorkerSession),
		workerMethod("DeleteWorkerSession", w.DeleteWorkerSession),
		workerMethod("RegisterGraph", w.RegisterGraph),
		workerMethod("DeregisterGraph", w.DeregisterGraph),
		heldMethod("RunGraph", w.RunGraph),
		workerMethod("CleanupGraph", w.CleanupGraph),
		workerMethod("CleanupAll", w.CleanupAll),
		method(desc.ServiceName, "RecvTensor", s.recvTensor),
		method(desc.ServiceName, "RecvBuf", s.recvBuf),
		heldMethod("Logging", w.Logging),
		workerMethod("Tracing", w.Tracing),
		workerMethod("CompleteGroup", w.CompleteGroup),
		workerMethod("CompleteInstance", w.CompleteInstance),
		workerMethod("GetStepSequence", w.GetStepSequence),
		workerMethod("MarkRecvFinished", s.markRecvFinished),
	}
	return &desc
}

// markRecvFinished releases cached responses, after the check of the caller's name.
func (s *service) markRecvFinished(ctx context.Context, req *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error) {
	if a := (transport.Process{Name: req.GetRequester(), Incarnation: req.GetRequesterIncarnation()}); a != (transport.Process{}) {
		if err := s.checkName(ctx, a); err != nil {
			return nil, err
		}
	}
	return s.Worker.MarkRecvFinished(ctx, req)
}

// createWorkerSession makes a session after the check of the master's name: a restarted master ends
// the sessions of its earlier incarnation, so nobody else may use its name.
func (s *service) createWorkerSession(ctx context.Context, req *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error) {
	if master := req.GetMasterTask(); master != "" && callersOf(ctx).Proven {
		if err := s.checkName(ctx, transport.Process{Name: master}); err != nil {
			return nil, err
		}
	}
	return s.Worker.CreateWorkerSession(ctx, req)
}

// workerMethod describes a method whose messages are plain protobuf.
func workerMethod[Req, Resp any](name string, f func(context.Context, *Req) (*Resp, error)) grpc.MethodDesc {
	return method(tensorflowgrpc.WorkerService_ServiceDesc.ServiceName, name,
		func(ctx context.Context, req *Req) (any, error) { return f(ctx, req) })
}

// heldMethod is workerMethod for responses whose memory is reserved until they are written (transport.HoldForResponse).
func heldMethod[Req any, Resp proto.Message](name string, f func(context.Context, *Req) (Resp, error)) grpc.MethodDesc {
	return method(tensorflowgrpc.WorkerService_ServiceDesc.ServiceName, name,
		func(ctx context.Context, req *Req) (any, error) {
			memory := new(transport.ResponseMemory)
			resp, err := f(transport.WithResponseMemory(ctx, memory), req)
			if err != nil {
				memory.Release()
				return nil, err
			}
			return encodeHeld(quotaOf(ctx), resp, memory)
		})
}

// encodeHeld returns a response encoded, which releases its memory when it is written or dropped.
func encodeHeld(q *connQuota, m proto.Message, memory *transport.ResponseMemory) (any, error) {
	size := proto.Size(m) // m may have grown since it was measured last
	if size <= copyLimit {
		memory.Release()
		return m, nil
	}
	l := newLease(nil, q.chargeNothing())
	l.memory = memory
	defer l.end()
	return encodedBy(l, m, size)
}
