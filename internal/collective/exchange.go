package collective

import (
	"context"
	"strconv"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// exchange is one member's run of one operation:
//
//	provide ──► bufs of the step ──► the peer that requests the key
//	receive ◄── bufs of the peer's step, by any route
//
// Several goroutines provide and receive. The first error ends the run: it aborts what others need
// of it, and the waits of all its goroutines. Memory that was provided is not written again, so a
// run need not wait for a peer before it goes on; finish waits until the peers have asked for all. A
// watcher ends the run when a peer that it waits for has failed, or is silent.
type exchange struct {
	s    *Step
	m    *members
	rank int
	exec string // begins the keys of the buffers
	// instance is the instance key of an operation of a Group.
	instance int32
	ctx      context.Context
	stop     context.CancelCauseFunc
	abort    func(error) // ends what peers wait for

	watch *watcher
	work  sync.WaitGroup // goroutines of the run

	mu   sync.Mutex // guards what follows
	sent []given
	err  error
}

// given is a buffer that a member takes.
type given struct {
	to    int // its rank
	taken chan error
}

// newExchange begins a run, which ctx ends. abort is called with the first error.
func (s *Step) newExchange(ctx context.Context, m *members, rank int, exec string, abort func(error)) *exchange {
	x := &exchange{s: s, m: m, rank: rank, exec: exec, abort: abort}
	x.ctx, x.stop = context.WithCancelCause(ctx)
	x.watch = s.c.newWatcher(x.ctx, m, rank, s.id, exec, func(rank int, err error) { x.fail(x.explain(rank, err)) })
	return x
}

// device returns the device of this member.
func (x *exchange) device() cluster.Device { return x.m.list[x.rank].device }

// do runs f on a goroutine of the run.
func (x *exchange) do(f func() error) {
	x.work.Go(func() {
		if err := guard(f); err != nil {
			x.fail(err)
		}
	})
}

// fail ends the run with err. Only the first call counts.
func (x *exchange) fail(err error) {
	x.mu.Lock()
	first := x.err == nil
	if first {
		x.err = err
	}
	x.mu.Unlock()
	if first {
		x.abort(err)
		x.stop(err)
	}
}

// finish waits for the goroutines of the run, and until peers have taken all that was provided. It
// returns the first error.
func (x *exchange) finish() error {
	x.work.Wait()
	x.mu.Lock()
	sent := x.sent
	x.mu.Unlock()
	for _, g := range sent {
		if err := <-g.taken; err != nil { // the end of the context ends it, too
			if x.ctx.Err() != nil {
				err = x.ended(g.to)
			}
			x.fail(err)
		}
	}
	x.watch.close()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stop(nil)
	return x.err
}

// provide makes t available under key to the member with the rank to.
func (x *exchange) provide(key string, to int, t *tensor.Tensor) error {
	if err := x.watch.await(to, toTake); err != nil {
		return x.explain(to, err)
	}
	c := make(chan error, 1)
	x.mu.Lock()
	x.sent = append(x.sent, given{to, c})
	x.mu.Unlock()
	x.s.bufs.provide(x.ctx, forDevice(key, x.m.list[to].device), t, func(err error) {
		x.watch.done(to, toTake)
		c <- err
	})
	return nil
}

// receive waits for the buffer of a member and copies it into dst, to which the caller has the only
// reference.
func (x *exchange) receive(key string, from int, dst *tensor.Tensor) error {
	err := x.watch.await(from, toProvide)
	if err == nil {
		err = x.receiveFrom(key, x.m.list[from], dst)
		x.watch.done(from, toProvide)
	}
	switch {
	case err == nil:
		return nil
	case x.ctx.Err() != nil:
		return x.ended(from)
	}
	return x.explain(from, err)
}

// ended returns why the run has ended while this member waited for another. When the caller's context has
// ended, it names that one: it is absent, or waits for one that is.
func (x *exchange) ended(rank int) error {
	err := status.From(causeOf(x.ctx))
	if !byCaller(x.ctx, err) {
		return err
	}
	return status.Errorf(err.Code(), "%s (while waiting for rank %d, %s)", err.Message(), rank, x.m.list[rank].device.Task).WithKind(status.KindOf(err))
}

// explain returns what an error of a member is for this one.
func (x *exchange) explain(rank int, err error) error {
	e := status.From(err)
	if _, restarted := e.Payload(status.PayloadPossiblyRestarted); restarted && e.Code() == status.Aborted {
		e = status.New(status.FailedPrecondition, e.Message()).WithPayload(status.PayloadPossiblyRestarted, nil)
	}
	if e.Code() == status.FailedPrecondition {
		x.s.c.groups.forget(x.m)
	}
	if task := x.m.list[rank].device.Task.String(); !status.IsDerived(e) && !strings.Contains(e.Message(), task) {
		e = e.WithPrefix("rank " + strconv.Itoa(rank) + ", " + task)
	}
	return e
}

func (x *exchange) receiveFrom(key string, from member, dst *tensor.Tensor) error {
	if from.device.Task == x.s.c.opts.Task {
		return x.receiveHere(key, from, dst)
	}
	tryst, err := x.m.isTryst(x.ctx, from.device.Task, x.s.c.opts.Tryst)
	if err != nil {
		return err
	}
	if !tryst {
		return x.recvBuf(key, from, dst)
	}
	k, err := bufferKey(x.s.id, from, x.device(), key)
	if err != nil {
		return err
	}
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		return err
	}
	v, err := x.s.c.opts.Remoter.RecvFromRemoteAsync(wireStep(x.s.id), k, into.Args(), nil).Wait(x.ctx)
	if err == nil {
		v.Tensor.Release()
	}
	return err
}

// receiveHere receives from another device of this process.
func (x *exchange) receiveHere(key string, from member, dst *tensor.Tensor) error {
	if err := x.s.c.checkSource(from.device, from.attributes.GetIncarnation()); err != nil {
		return err
	}
	type result struct {
		t   *tensor.Tensor
		err error
	}
	got := make(chan result, 1)
	x.s.bufs.consume(x.ctx, forDevice(key, x.device()), func(t *tensor.Tensor, err error) { got <- result{t, err} })
	r := <-got // the end of the context ends it, too
	if r.err != nil {
		return r.err
	}
	defer r.t.Release()
	if r.t.DType() != dst.DType() || r.t.Size() != dst.Size() {
		return status.Errorf(status.Internal, "Tensor Size Mismatch: the buffer of key %s is %v, but the op at device %s expects %v", key, r.t, x.device(), dst)
	}
	copy(dst.Bytes(), r.t.Bytes())
	return nil
}

// recvBuf receives from a TensorFlow worker.
func (x *exchange) recvBuf(key string, from member, dst *tensor.Tensor) error {
	w, err := x.s.c.opts.Workers.Worker(from.device.Task)
	if err != nil {
		return err
	}
	req := &tfpb.RecvBufRequest{
		StepId: x.s.id, BufRendezvousKey: key, NumBytes: dst.Size(),
		SrcDevice: from.device.String(), SrcIncarnation: from.attributes.GetIncarnation(), DstDevice: x.device().String(),
		ClientLocality: x.m.list[x.rank].attributes.GetLocality(), ServerLocality: from.attributes.GetLocality(),
	}
	req.RequestId = transport.NewRequestID()
	resp, err := w.RecvBuf(x.ctx, req)
	if err != nil {
		return err
	}
	return copyContent(dst.Bytes(), resp)
}

// part returns elements of t as a vector over its memory, with one reference.
func part(t *tensor.Tensor, first, n int64) (*tensor.Tensor, error) {
	size := int64(t.DType().Size())
	b, err := t.Buffer().Slice(int(first*size), int(n*size))
	if err != nil {
		return nil, err
	}
	p, err := tensor.New(t.DType(), tensor.Vector(int(n)), b)
	if err != nil {
		b.Release()
	}
	return p, err
}
