package grpctransport

import (
	"context"
	"math"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/proto/tryst"
	"github.com/tryst-rdma/tryst/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// wire implements transport.Wire to one task.
type wire struct {
	transport *RpcRemoteRendezvous
	task      cluster.Task
	address   string
	worker    *RemoteWorker
}

// Hello implements transport.Wire.
func (w *wire) Hello(ctx context.Context) (transport.Peer, error) {
	self := w.transport.opts.Self
	req := &trystpb.HelloRequest{Asker: self.Name, AskerIncarnation: self.Incarnation}
	var resp trystpb.HelloResponse
	var trailer metadata.MD
	err := w.worker.conn.Invoke(ctx, trystgrpc.Peers_Hello_FullMethodName, req, &resp,
		grpc.Trailer(&trailer), grpc.WaitForReady(true))
	if err != nil {
		e := status.From(fromGRPC(err, trailer))
		if e.Code() == status.Unimplemented {
			return transport.Peer{}, nil
		}
		if e.Code() == status.DeadlineExceeded { // with the last error of the connection in its text
			e = status.New(status.Unavailable, e.Message())
		}
		if e = e.WithPrefix(w.address); answered(trailer) || ctx.Err() != nil {
			return transport.Peer{}, e
		}
		return transport.Peer{}, &transport.LostError{Err: e}
	}
	if name := resp.GetName(); name != w.task.String() {
		return transport.Peer{}, status.Errorf(status.FailedPrecondition,
			"the server at %s is %s, not %v: check the cluster's addresses", w.address, name, w.task)
	}
	return transport.Peer{Tryst: true, Incarnation: resp.GetIncarnation()}, nil
}

// Recv implements transport.Wire.
func (w *wire) Recv(ctx context.Context, a *transport.Attempt) (rendezvous.Value, error) {
	requested := time.Now()
	req := &tfpb.RecvTensorRequest{StepId: a.Step, RendezvousKey: a.Key.String()}
	if a.Plain {
		for req.RequestId == 0 {
			req.RequestId = rand.Int64()
		}
	} else {
		var err error
		if req.TransportOptions, err = anypb.New(recvOptions(a)); err != nil {
			return rendezvous.Value{}, status.From(err)
		}
		ctx = metadata.NewOutgoingContext(ctx, w.transport.caps)
	}
	resp := received{alloc: w.worker.alloc}
	if trailer, err := w.worker.recv(ctx, req, &resp); err != nil {
		return rendezvous.Value{}, w.failed(ctx, a, err, trailer)
	}
	if resp.err != nil {
		return rendezvous.Value{}, &transport.ReceiverError{Err: resp.err}
	}
	if resp.RequireAck {
		w.ack(req.GetRequestId())
	}
	if resp.ticket() != nil {
		if err := w.fetch(ctx, a, &resp); err != nil {
			return rendezvous.Value{}, err
		}
	}
	r := resp.take()
	logTransfer(w.worker.log, a.Step, a.Key, a.Attempt, requested, r.SendStartMicros, r.Tensor.Size())
	return rendezvous.Value{Tensor: r.Tensor, Dead: r.Dead}, nil
}

func recvOptions(a *transport.Attempt) *trystpb.RecvOptions {
	return &trystpb.RecvOptions{
		Asker: a.Asker.Name, AskerIncarnation: a.Asker.Incarnation, SenderIncarnation: a.Peer,
		Id: a.ID, Attempt: a.Attempt, Finished: a.Finished, Cancelled: a.Cancelled,
		LeftGeneration: uint32(min(a.Left, math.MaxUint32)), //nolint:gosec // generations end before (package pairing)
	}
}

// failed returns what the error of an attempt means: the peer's own word, the end of this
// side's context, or that the peer has not answered. An error of a Tryst peer has a trailer
// that says so. A peer that is not Tryst has none: there only what gRPC says when a
// connection ends is not its word.
func (w *wire) failed(ctx context.Context, a *transport.Attempt, err error, trailer metadata.MD) error {
	e := status.From(fromGRPC(err, trailer))
	switch {
	case transport.IsOtherProcess(e):
		return &transport.RestartedError{Err: e}
	case answered(trailer):
		return e
	case ctx.Err() != nil:
		return &transport.ReceiverError{Err: e}
	case a.Plain && e.Code() != status.Unavailable && e.Code() != status.Cancelled:
		return e
	}
	return &transport.LostError{Err: e.WithPrefix(w.address)} // Failover names the task
}

// ack says to a peer that is not Tryst that its answer is here.
func (w *wire) ack(requestID int64) {
	w.transport.acks.Go(func() {
		ctx, cancel := context.WithTimeout(w.transport.base, ackWait)
		defer cancel()
		// If it fails the peer lets its copy go with the step.
		_, _ = w.worker.MarkRecvFinished(ctx, &tfpb.MarkRecvFinishedRequest{RequestId: requestID})
	})
}

// Finish implements transport.Wire.
func (w *wire) Finish(ctx context.Context, ids []uint64) error {
	return w.tell(ctx, tensorflowgrpc.WorkerService_MarkRecvFinished_FullMethodName, &tfpb.MarkRecvFinishedRequest{
		Asker: w.transport.opts.Self.Name, AskerIncarnation: w.transport.opts.Self.Incarnation, Finished: ids,
	}, new(tfpb.MarkRecvFinishedResponse))
}

// Cancel implements transport.Wire.
func (w *wire) Cancel(ctx context.Context, ids []uint64) error {
	return w.tell(ctx, trystgrpc.Peers_Cancel_FullMethodName, &trystpb.CancelRequest{
		Asker: w.transport.opts.Self.Name, AskerIncarnation: w.transport.opts.Self.Incarnation, Ids: ids,
	}, new(trystpb.CancelResponse))
}

// tell makes a call whose answer says nothing.
func (w *wire) tell(ctx context.Context, method string, req, resp any) error {
	var trailer metadata.MD
	err := w.worker.conn.Invoke(ctx, method, req, resp, grpc.Trailer(&trailer))
	if err = fromGRPC(err, trailer); err == nil || answered(trailer) || ctx.Err() != nil {
		return err
	}
	return &transport.LostError{Err: err}
}
