package worker

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/internal/collective"
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
	if err := w.checkDevice(ctx, "RecvBuf", req.GetDstDevice()); err != nil {
		return nil, err
	}
	return wait(ctx, w, len(req.GetBufRendezvousKey()), func(c *collective.Collectives) (*tfpb.RecvBufResponse, error) {
		if err := w.recentBufs.track(req.GetRequestId(), req); err != nil {
			return nil, err
		}
		return c.RecvBuf(ctx, req)
	})
}

// CompleteGroup enters a device into a group of collective operations.
func (w *Worker) CompleteGroup(ctx context.Context, req *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	if err := w.checkDevice(ctx, "CompleteGroup", req.GetDeviceAttributes().GetName()); err != nil {
		return nil, err
	}
	return wait(ctx, w, proto.Size(req), func(c *collective.Collectives) (*tfpb.CompleteGroupResponse, error) { return c.CompleteGroup(ctx, req) })
}

// CompleteInstance enters an operation of a group.
func (w *Worker) CompleteInstance(ctx context.Context, req *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	if err := w.checkDevice(ctx, "CompleteInstance", req.GetDevice()); err != nil {
		return nil, err
	}
	return wait(ctx, w, proto.Size(req), func(c *collective.Collectives) (*tfpb.CompleteInstanceResponse, error) {
		return c.CompleteInstance(ctx, req)
	})
}

// wait makes a call of collective operations, which may wait for other members. It counts with size
// bytes like a waiting receive of its host. A call that is refused leaves no trace.
func wait[Resp any](ctx context.Context, w *Worker, size int, call func(*collective.Collectives) (*Resp, error)) (*Resp, error) {
	if w.opts.Collectives == nil {
		return nil, errNoCollectives()
	}
	release, err := w.waiting.take(transport.CallerOf(ctx).Address, int64(size))
	if err != nil {
		return nil, err
	}
	defer release()
	return call(w.opts.Collectives)
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
