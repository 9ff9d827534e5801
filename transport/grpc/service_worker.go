package grpctransport

import (
	"context"

	"google.golang.org/grpc"

	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
)

// workerService describes TensorFlow's WorkerService over s. Its methods are
// those of the generated description; RecvTensor answers with bytes of its own.
func workerService(s *service) *grpc.ServiceDesc {
	desc := tensorflowgrpc.WorkerService_ServiceDesc // a copy
	desc.HandlerType = (*any)(nil)
	w := s.Worker
	desc.Methods = []grpc.MethodDesc{
		workerMethod("GetStatus", w.GetStatus),
		workerMethod("CreateWorkerSession", w.CreateWorkerSession),
		workerMethod("DeleteWorkerSession", w.DeleteWorkerSession),
		workerMethod("RegisterGraph", w.RegisterGraph),
		workerMethod("DeregisterGraph", w.DeregisterGraph),
		workerMethod("RunGraph", w.RunGraph),
		workerMethod("CleanupGraph", w.CleanupGraph),
		workerMethod("CleanupAll", w.CleanupAll),
		method(desc.ServiceName, "RecvTensor", s.recvTensor),
		workerMethod("RecvBuf", w.RecvBuf),
		workerMethod("Logging", w.Logging),
		workerMethod("Tracing", w.Tracing),
		workerMethod("CompleteGroup", w.CompleteGroup),
		workerMethod("CompleteInstance", w.CompleteInstance),
		workerMethod("GetStepSequence", w.GetStepSequence),
		workerMethod("MarkRecvFinished", w.MarkRecvFinished),
	}
	return &desc
}

// workerMethod describes a method whose messages are plain protobuf.
func workerMethod[Req, Resp any](name string, f func(context.Context, *Req) (*Resp, error)) grpc.MethodDesc {
	return method(tensorflowgrpc.WorkerService_ServiceDesc.ServiceName, name,
		func(ctx context.Context, req *Req) (any, error) { return f(ctx, req) })
}
