package grpctransport

import (
	"context"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// RemoteWorker implements transport.Worker by calls to a peer. A call fails at once when the
// peer is unreachable. Only GetStatus waits for the peer, as in TensorFlow, where a starting
// cluster uses it to find its tasks. Conns.Worker returns one.
type RemoteWorker struct {
	conn  grpc.ClientConnInterface
	alloc tensor.Allocator
	log   *transport.Log
	task  cluster.Task // for the log; zero when the cluster of this process does not have it
}

// call calls a method and returns its response.
func call[Resp any](ctx context.Context, w *RemoteWorker, method string, req any, opts ...grpc.CallOption) (*Resp, error) {
	resp := new(Resp)
	var trailer metadata.MD
	if err := w.conn.Invoke(ctx, method, req, resp, append(opts, grpc.Trailer(&trailer))...); err != nil {
		return nil, fromGRPC(err, trailer)
	}
	return resp, nil
}

// RecvTensor implements transport.Worker. The Allocator of ConnsOptions allocates the tensor.
func (w *RemoteWorker) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	requested := time.Now()
	resp := received{alloc: w.alloc}
	if trailer, err := w.recv(ctx, req, &resp); err != nil {
		return nil, fromGRPC(err, trailer)
	}
	if resp.err != nil {
		return nil, resp.err
	}
	if resp.ticket() != nil {
		return nil, status.New(status.Internal, "the peer sent a ticket for content in chunks to a client that does not accept chunks")
	}
	r := resp.take()
	if w.log != nil {
		if key, err := rendezvous.ParseKey(req.GetRendezvousKey()); err == nil {
			w.logTransfer(req.GetStepId(), key, 1, requested, r.SendStartMicros, r.Tensor.Size())
		}
	}
	return &r, nil
}

// recv calls RecvTensor and parses the response into resp. On error, which is gRPC's, resp
// holds nothing.
func (w *RemoteWorker) recv(ctx context.Context, req *tfpb.RecvTensorRequest, resp *received) (trailer metadata.MD, err error) {
	err = w.conn.Invoke(ctx, tensorflowgrpc.WorkerService_RecvTensor_FullMethodName, req, resp, grpc.MaxCallRecvMsgSize(maxMessage), grpc.Trailer(&trailer))
	if err != nil {
		resp.release() // the call may fail after its message
	}
	return trailer, err
}

// logTransfer records a RecvTensor that ends now.
func (w *RemoteWorker) logTransfer(step int64, key rendezvous.Key, attempt uint32, requested time.Time, sendStartMicros, bytes int64) {
	t := transport.NewTransfer(requested, time.Now(), sendStartMicros)
	t.Step, t.Tensor, t.Transport, t.Bytes = step, key.Edge(), Name, bytes
	t.Source, t.Destination, t.Peer, t.Attempt = key.Src(), key.Dst(), w.task, attempt
	w.log.Add(t)
}

// GetStatus implements transport.Worker. It waits until the peer is reachable or ctx ends.
func (w *RemoteWorker) GetStatus(ctx context.Context, req *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error) {
	return call[tfpb.GetStatusResponse](ctx, w, tensorflowgrpc.WorkerService_GetStatus_FullMethodName, req, grpc.WaitForReady(true))
}

// CreateWorkerSession implements transport.Worker.
func (w *RemoteWorker) CreateWorkerSession(ctx context.Context, req *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error) {
	return call[tfpb.CreateWorkerSessionResponse](ctx, w, tensorflowgrpc.WorkerService_CreateWorkerSession_FullMethodName, req)
}

// DeleteWorkerSession implements transport.Worker.
func (w *RemoteWorker) DeleteWorkerSession(ctx context.Context, req *tfpb.DeleteWorkerSessionRequest) (*tfpb.DeleteWorkerSessionResponse, error) {
	return call[tfpb.DeleteWorkerSessionResponse](ctx, w, tensorflowgrpc.WorkerService_DeleteWorkerSession_FullMethodName, req)
}

// RegisterGraph implements transport.Worker.
func (w *RemoteWorker) RegisterGraph(ctx context.Context, req *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error) {
	return call[tfpb.RegisterGraphResponse](ctx, w, tensorflowgrpc.WorkerService_RegisterGraph_FullMethodName, req)
}

// DeregisterGraph implements transport.Worker.
func (w *RemoteWorker) DeregisterGraph(ctx context.Context, req *tfpb.DeregisterGraphRequest) (*tfpb.DeregisterGraphResponse, error) {
	return call[tfpb.DeregisterGraphResponse](ctx, w, tensorflowgrpc.WorkerService_DeregisterGraph_FullMethodName, req)
}

// RunGraph implements transport.Worker.
func (w *RemoteWorker) RunGraph(ctx context.Context, req *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error) {
	return call[tfpb.RunGraphResponse](ctx, w, tensorflowgrpc.WorkerService_RunGraph_FullMethodName, req, grpc.MaxCallRecvMsgSize(maxMessage))
}

// CleanupGraph implements transport.Worker.
func (w *RemoteWorker) CleanupGraph(ctx context.Context, req *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error) {
	return call[tfpb.CleanupGraphResponse](ctx, w, tensorflowgrpc.WorkerService_CleanupGraph_FullMethodName, req)
}

// CleanupAll implements transport.Worker.
func (w *RemoteWorker) CleanupAll(ctx context.Context, req *tfpb.CleanupAllRequest) (*tfpb.CleanupAllResponse, error) {
	return call[tfpb.CleanupAllResponse](ctx, w, tensorflowgrpc.WorkerService_CleanupAll_FullMethodName, req)
}

// RecvBuf implements transport.Worker.
func (w *RemoteWorker) RecvBuf(ctx context.Context, req *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	return call[tfpb.RecvBufResponse](ctx, w, tensorflowgrpc.WorkerService_RecvBuf_FullMethodName, req, grpc.MaxCallRecvMsgSize(maxMessage))
}

// Logging implements transport.Worker.
func (w *RemoteWorker) Logging(ctx context.Context, req *tfpb.LoggingRequest) (*tfpb.LoggingResponse, error) {
	return call[tfpb.LoggingResponse](ctx, w, tensorflowgrpc.WorkerService_Logging_FullMethodName, req, grpc.MaxCallRecvMsgSize(maxRecords))
}

// Tracing implements transport.Worker.
func (w *RemoteWorker) Tracing(ctx context.Context, req *tfpb.TracingRequest) (*tfpb.TracingResponse, error) {
	return call[tfpb.TracingResponse](ctx, w, tensorflowgrpc.WorkerService_Tracing_FullMethodName, req, grpc.MaxCallRecvMsgSize(maxRecords))
}

// CompleteGroup implements transport.Worker.
func (w *RemoteWorker) CompleteGroup(ctx context.Context, req *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	return call[tfpb.CompleteGroupResponse](ctx, w, tensorflowgrpc.WorkerService_CompleteGroup_FullMethodName, req, grpc.MaxCallRecvMsgSize(maxMembers))
}

// CompleteInstance implements transport.Worker.
func (w *RemoteWorker) CompleteInstance(ctx context.Context, req *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	return call[tfpb.CompleteInstanceResponse](ctx, w, tensorflowgrpc.WorkerService_CompleteInstance_FullMethodName, req)
}

// GetStepSequence implements transport.Worker.
func (w *RemoteWorker) GetStepSequence(ctx context.Context, req *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error) {
	return call[tfpb.GetStepSequenceResponse](ctx, w, tensorflowgrpc.WorkerService_GetStepSequence_FullMethodName, req)
}

// MarkRecvFinished implements transport.Worker.
func (w *RemoteWorker) MarkRecvFinished(ctx context.Context, req *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error) {
	return call[tfpb.MarkRecvFinishedResponse](ctx, w, tensorflowgrpc.WorkerService_MarkRecvFinished_FullMethodName, req)
}
