package grpctransport

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/proto/tensorflowgrpc"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// conn implements transport.Conn to one task.
type conn struct {
	transport *RpcRemoteRendezvous
	task      cluster.Task
	at        func() (address string)
	worker    *RemoteWorker
}

// Hello implements transport.Conn.
func (c *conn) Hello(ctx context.Context) (transport.Peer, error) {
	self := c.transport.opts.Self
	req := &trystpb.HelloRequest{Requester: self.Name, RequesterIncarnation: self.Incarnation}
	var resp trystpb.HelloResponse
	var trailer metadata.MD
	err := c.worker.conn.Invoke(ctx, trystgrpc.Peers_Hello_FullMethodName, req, &resp,
		grpc.Trailer(&trailer), grpc.WaitForReady(true))
	if err != nil {
		if own := ownErrorOf(err); own != nil {
			return transport.Peer{}, own
		}
		e := status.From(fromGRPC(err, trailer))
		if e.Code() == status.Unimplemented {
			return transport.Peer{}, nil
		}
		if e.Code() == status.DeadlineExceeded { // its text has the last error of the connection
			e = status.New(status.Unavailable, e.Message())
		}
		if e = c.withAddress(e); answered(trailer) || ctx.Err() != nil {
			return transport.Peer{}, e
		}
		return transport.Peer{}, &transport.LostError{Err: e}
	}
	if name := resp.GetName(); name != c.task.String() && !c.transport.opts.Conns.opts.Renamed {
		return transport.Peer{}, status.Errorf(status.FailedPrecondition,
			"the server at %s is %s, not %v: check the cluster's addresses", c.at(), name, c.task)
	}
	return transport.Peer{Tryst: true, Incarnation: resp.GetIncarnation()}, nil
}

// Begin implements transport.Conn. Wait makes the call.
func (c *conn) Begin(t *transport.Receive) transport.Attempt {
	a := &attempt{conn: c, t: t}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	return a
}

// Ack implements transport.Conn.
func (c *conn) Ack(ctx context.Context, ids []uint64) error {
	return c.send(ctx, tensorflowgrpc.WorkerService_MarkRecvFinished_FullMethodName, &tfpb.MarkRecvFinishedRequest{
		Requester: c.transport.opts.Self.Name, RequesterIncarnation: c.transport.opts.Self.Incarnation, Finished: ids,
	}, new(tfpb.MarkRecvFinishedResponse))
}

// Cancel implements transport.Conn.
func (c *conn) Cancel(ctx context.Context, ids []uint64) error {
	return c.send(ctx, trystgrpc.Peers_Cancel_FullMethodName, &trystpb.CancelRequest{
		Requester: c.transport.opts.Self.Name, RequesterIncarnation: c.transport.opts.Self.Incarnation, Ids: ids,
	}, new(trystpb.CancelResponse))
}

// send makes a call whose response is empty.
func (c *conn) send(ctx context.Context, method string, req, resp any) error {
	var trailer metadata.MD
	err := c.worker.conn.Invoke(ctx, method, req, resp, grpc.Trailer(&trailer))
	if err = fromGRPC(err, trailer); err == nil || answered(trailer) || ctx.Err() != nil {
		return err
	}
	return &transport.LostError{Err: err}
}

// attempt implements transport.Attempt: one call of RecvTensor, and one of Fetch for a large
// tensor.
type attempt struct {
	*conn
	t      *transport.Receive
	ctx    context.Context // cancelled by Drop
	cancel context.CancelFunc
}

// Notify implements transport.Attempt. It returns false because a call needs a goroutine.
func (*attempt) Notify(func()) bool { return false }

// Drop implements transport.Attempt.
func (a *attempt) Drop() { a.cancel() }

// Wait implements transport.Attempt.
func (a *attempt) Wait(ctx context.Context) (rendezvous.Value, error) {
	defer a.cancel()
	defer context.AfterFunc(ctx, a.cancel)()
	t, c := a.t, a.conn
	requested := time.Now()
	req := &tfpb.RecvTensorRequest{StepId: t.Step, RendezvousKey: t.Key.String()}
	ctx = a.ctx
	if t.Plain {
		req.RequestId = transport.NewRequestID()
	} else {
		var err error
		if req.TransportOptions, err = anypb.New(recvOptions(t)); err != nil {
			return rendezvous.Value{}, status.From(err)
		}
		ctx = metadata.NewOutgoingContext(ctx, c.transport.caps)
	}
	resp := received{alloc: c.worker.alloc, t: t}
	if trailer, err := c.worker.recv(ctx, req, &resp); err != nil {
		failed := c.failed(ctx, t, err, trailer)
		if lost, ok := errors.AsType[*transport.LostError](failed); ok {
			lost.Unsent = notConnected(err)
		}
		return rendezvous.Value{}, failed
	}
	if resp.err != nil {
		return rendezvous.Value{}, receiverError(resp.err)
	}
	if resp.RequireAck {
		c.markFinished(req.GetRequestId())
	}
	if resp.ticket() != nil {
		if err := c.fetch(ctx, t, &resp); err != nil {
			if restarted, ok := errors.AsType[*transport.RestartedError](err); ok {
				restarted.Reached = true // the process asked has sent the ticket
			}
			return rendezvous.Value{}, err
		}
	}
	r := resp.take()
	t.Arrival.Transport = Name
	c.worker.logTransfer(t.Step, t.Key, t.Attempt, requested, r.SendStartMicros, r.Tensor.Size())
	return rendezvous.Value{Tensor: r.Tensor, Dead: r.Dead}, nil
}

// receiverError returns err as a *ReceiverError.
func receiverError(err error) error {
	if own, ok := errors.AsType[*transport.ReceiverError](err); ok {
		return own
	}
	return &transport.ReceiverError{Err: err}
}

func recvOptions(t *transport.Receive) *trystpb.RecvOptions {
	return &trystpb.RecvOptions{
		Requester: t.Requester.Name, RequesterIncarnation: t.Requester.Incarnation, SenderIncarnation: t.Peer,
		Id: t.ID, Attempt: t.Attempt, Finished: t.Acks, Cancelled: t.Cancels,
		LeftGeneration: uint32(min(t.Left, math.MaxUint32)), //nolint:gosec // generations fit in 32 bits (package handshake)
	}
}

// failed returns the error of a call of an attempt as the Requester expects it: the peer's own
// error, a ReceiverError when ctx has ended, or a LostError when the peer has not answered. The
// caller sets Unsent and Reached, which depend on the earlier calls of the attempt. A Tryst peer
// marks its errors with a trailer. A peer that is not Tryst does not: its errors are all taken as
// its own, except the codes that gRPC uses when a connection ends.
func (c *conn) failed(ctx context.Context, t *transport.Receive, err error, trailer metadata.MD) error {
	if own := ownErrorOf(err); own != nil {
		return &transport.ReceiverError{Err: own}
	}
	e := status.From(fromGRPC(err, trailer))
	switch {
	case transport.IsOtherProcess(e):
		return &transport.RestartedError{Err: e}
	case answered(trailer):
		return e
	case ctx.Err() != nil:
		return &transport.ReceiverError{Err: e}
	case t.Plain && e.Code() != status.Unavailable && e.Code() != status.Cancelled:
		return e
	}
	return &transport.LostError{Err: c.withAddress(e)} // the Requester adds the task
}

// withAddress returns e with the address of the peer before its text, unless it begins so.
func (c *conn) withAddress(e *status.Error) *status.Error {
	if strings.HasPrefix(e.Message(), c.at()+" ") {
		return e
	}
	return e.WithPrefix(c.at())
}

// markFinished acknowledges the response of a peer that is not Tryst. It does not wait.
func (c *conn) markFinished(requestID int64) {
	c.transport.acks.Go(func() {
		ctx, cancel := context.WithTimeout(c.transport.base, ackWait)
		defer cancel()
		// After an error the peer releases its copy at the end of the step.
		_, _ = c.worker.MarkRecvFinished(ctx, &tfpb.MarkRecvFinishedRequest{RequestId: requestID})
	})
}
