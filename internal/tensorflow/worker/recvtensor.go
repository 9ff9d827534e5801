package worker

import (
	"context"
	"sync/atomic"

	"google.golang.org/protobuf/types/known/anypb"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/wiresize"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// RecvTensor waits for the value of a key. The request may arrive before the step exists in
// this process; it then waits until ctx ends.
//
// The end of ctx before the response has two meanings. For a Tryst peer it is the loss of a
// connection: the peer requests again, and cancels by Peers.Cancel. For any other peer it
// is a cancel: as in TensorFlow 2.21 the step is aborted a second later, since it fails
// without its consumer.
func (w *Worker) RecvTensor(ctx context.Context, req *tfpb.RecvTensorRequest) (*transport.TensorResponse, error) {
	key, err := rendezvous.ParseKey(req.GetRendezvousKey())
	if err != nil {
		return nil, err
	}
	if err := w.checkLeft(&key); err != nil {
		return nil, err
	}
	opts, err := w.recvOptions(req.GetTransportOptions())
	if err != nil {
		return nil, err
	}
	if opts != nil {
		return w.recvTryst(ctx, req.GetStepId(), key, opts)
	}
	if err := checkStep("RecvTensor", req.GetStepId()); err != nil {
		return nil, err
	}
	if err := w.session.CheckSourceDevice(key); err != nil {
		return nil, err
	}
	guard, err := w.CheckReceiver(key, transport.CallerOf(ctx).Covers)
	if err != nil {
		return nil, err
	}
	guard, abort := w.aborts(req.GetStepId(), guard)
	if id := uint64(req.GetRequestId()); w.opts.CacheRPCResponse && id != 0 {
		r := transport.Request{ID: id, Step: req.GetStepId(), Key: key, Guard: guard}
		v, err := w.receive(ctx, r, abort)
		if err != nil {
			return nil, err
		}
		return w.kept(r, v, true), nil
	}
	if err := w.recent.track(req.GetRequestId(), req); err != nil {
		return nil, err
	}
	return w.recvOnce(rendezvous.WithGuard(ctx, guard), req.GetStepId(), key, abort)
}

// recvOptions returns the options of a Tryst request; nil for any other request. It ignores
// options of an unknown type, as TensorFlow does.
func (w *Worker) recvOptions(a *anypb.Any) (*trystpb.RecvOptions, error) {
	var o trystpb.RecvOptions
	if !a.MessageIs(&o) {
		return nil, nil
	}
	if _, err := w.options.Size(a.GetValue(), &o, wiresize.Bound(len(a.GetValue()))); err != nil {
		return nil, status.From(err).WithPrefix("RecvTensor: cannot parse transport_options as tryst.RecvOptions")
	}
	if err := a.UnmarshalTo(&o); err != nil {
		return nil, invalid("RecvTensor: cannot parse transport_options as tryst.RecvOptions: %w", err)
	}
	if o.GetRequesterIncarnation() == 0 || o.GetId() == 0 || o.GetAttempt() == 0 || o.GetRequester() == "" {
		return nil, invalid("RecvTensor: tryst.RecvOptions has requester %q, incarnation %016x, id %016x, attempt %d; none may be empty or 0",
			o.GetRequester(), o.GetRequesterIncarnation(), o.GetId(), o.GetAttempt())
	}
	return &o, nil
}

func (w *Worker) recvTryst(ctx context.Context, step int64, key rendezvous.Key, o *trystpb.RecvOptions) (*transport.TensorResponse, error) {
	if is := w.opts.Incarnation; o.GetSenderIncarnation() != 0 && o.GetSenderIncarnation() != is {
		return nil, transport.OtherProcess(o.GetSenderIncarnation(), is)
	}
	if err := w.CheckSource(key); err != nil {
		return nil, err
	}
	guard, err := w.CheckReceiver(key, transport.CallerOf(ctx).Covers)
	if err != nil {
		return nil, err
	}
	requester := transport.Process{Name: o.GetRequester(), Incarnation: o.GetRequesterIncarnation()}
	if accept := transport.CallerOf(ctx).Accept; accept != nil {
		if err := accept(ctx, requester, uint64(o.GetLeftGeneration())); err != nil {
			return nil, err
		}
	}
	w.opts.Cache.Ack(requester, o.GetFinished())
	if err := w.opts.Cache.Cancel(requester, o.GetCancelled()); err != nil {
		return nil, err
	}
	r := transport.Request{Requester: requester, ID: o.GetId(), Attempt: o.GetAttempt(), Step: step, Key: key, Guard: guard}
	v, err := w.receive(ctx, r, nil)
	if err != nil {
		return nil, err
	}
	return w.kept(r, v, false), nil
}

// CheckSource checks a key that a Tryst peer requests: its source is this process, under its own name
// or under the one that it has in a session of a propagated cluster.
func (w *Worker) CheckSource(key rendezvous.Key) error {
	place := w.session
	if w.sessions != nil && key.Src().Task != place.Task {
		if s := w.sessions.named(key.Src().Task); s != nil {
			place = s
		}
	}
	return place.CheckSource(key)
}

// kept is the response with a value that the cache keeps.
func (w *Worker) kept(r transport.Request, v rendezvous.Value, requireAck bool) *transport.TensorResponse {
	resp := response(v, requireAck)
	of, id, attempt := r.Requester, r.ID, r.Attempt
	resp.Requester = of
	resp.Failed = func(err error) { w.opts.Cache.Fail(of, id, attempt, err) }
	return resp
}

func response(v rendezvous.Value, requireAck bool) *transport.TensorResponse {
	return &transport.TensorResponse{Tensor: v.Tensor, Dead: v.Dead, RequireAck: requireAck}
}

// receive waits for the response to r. If ctx ends first, it detaches its call from the
// receive and calls onCancel, if that is not nil.
func (w *Worker) receive(ctx context.Context, r transport.Request, onCancel func()) (rendezvous.Value, error) {
	c := &call{response: make(chan transport.Response, 1)}
	w.opts.Cache.Request(c, r)
	select {
	case resp := <-c.response:
		return resp.Value, resp.Err
	case <-ctx.Done():
		if !c.over.CompareAndSwap(false, true) {
			resp := <-c.response
			return resp.Value, resp.Err
		}
		w.opts.Cache.Detach(c, r.Requester, r.ID, r.Attempt)
		if onCancel != nil {
			onCancel()
		}
		return rendezvous.Value{}, status.From(ctx.Err())
	}
}

// call is a call that waits for its response. It implements transport.Replier.
type call struct {
	over     atomic.Bool // set by the response or by the end of the context, whichever is first
	response chan transport.Response
}

// Reply implements transport.Replier.
func (c *call) Reply(_ uint64, _ uint32, r transport.Response) {
	if c.over.CompareAndSwap(false, true) {
		c.response <- r
	} else if r.Err == nil {
		r.Value.Tensor.Release() // the cache has its own reference
	}
}

// recvOnce serves a request without an id. The value leaves the rendezvous when it is
// matched, and is lost if the call fails. The end of ctx calls abort.
func (w *Worker) recvOnce(ctx context.Context, step int64, key rendezvous.Key, abort func()) (*transport.TensorResponse, error) {
	release, err := w.waiting.take(transport.CallerOf(ctx).Address, int64(len(key.String())))
	if err != nil {
		return nil, err
	}
	defer release()
	v, err := w.opts.Manager.RecvLocal(ctx, step, key)
	if err != nil {
		if ctx.Err() != nil {
			abort()
		}
		return nil, err
	}
	resp := response(v, false)
	if v.SendArgs.Device != nil { // perhaps the record of its sender
		resp.Sent = v.Sent
	}
	return resp, nil
}
