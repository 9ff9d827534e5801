package worker

import (
	"context"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// errNoCollectives is TensorFlow's error of a worker that was made without them.
func errNoCollectives() error {
	return status.New(status.Internal, "Runtime not initialized with CollectiveExecutorMgr")
}

// RecvBuf waits for a buffer of a collective operation.
func (w *Worker) RecvBuf(ctx context.Context, req *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	if w.opts.Collectives == nil {
		return nil, errNoCollectives()
	}
	if err := w.recentBufs.track(req.GetRequestId(), req); err != nil {
		return nil, err
	}
	release, err := w.waiting.take(transport.CallerOf(ctx).Address, int64(len(req.GetBufRendezvousKey())))
	if err != nil {
		return nil, err
	}
	defer release()
	return w.opts.Collectives.RecvBuf(ctx, req)
}

// CompleteGroup enters a device into a group of collective operations.
func (w *Worker) CompleteGroup(ctx context.Context, req *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	if w.opts.Collectives == nil {
		return nil, errNoCollectives()
	}
	release, err := w.waiting.take(transport.CallerOf(ctx).Address, int64(proto.Size(req)))
	if err != nil {
		return nil, err
	}
	defer release()
	return w.opts.Collectives.CompleteGroup(ctx, req)
}

// CompleteInstance enters an operation of a group.
func (w *Worker) CompleteInstance(ctx context.Context, req *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	if w.opts.Collectives == nil {
		return nil, errNoCollectives()
	}
	release, err := w.waiting.take(transport.CallerOf(ctx).Address, int64(proto.Size(req)))
	if err != nil {
		return nil, err
	}
	defer release()
	return w.opts.Collectives.CompleteInstance(ctx, req)
}

// GetStepSequence returns the ids of the next steps of graphs with collective operations.
func (w *Worker) GetStepSequence(ctx context.Context, req *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error) {
	if w.opts.Collectives == nil {
		return nil, errNoCollectives()
	}
	return w.opts.Collectives.GetStepSequence(ctx, req)
}

// abortCollectives ends the collective operations of a step, here and at peers.
func (w *Worker) abortCollectives(step int64, err error) {
	if w.opts.Collectives != nil {
		w.opts.Collectives.AbortStep(step, err)
	}
}

// collectives is for the kernels of a step.
func (w *Worker) collectives() any {
	if w.opts.Collectives == nil {
		return nil
	}
	return w.opts.Collectives
}
