package server

import (
	"context"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server/internal/membership"
	"github.com/tryst-rdma/tryst/tensor"
)

// Edge is a prepared name between this task and a peer: it sends to the peer under the name,
// and receives what the peer sends here under it, in any step. What Server.Send and Recv do
// for each value, an Edge does once: it parses and checks the names, and makes the texts of
// the keys. It is safe for concurrent use, and needs no Close.
//
// A key contains the incarnation of the sender. An Edge follows a peer that restarts: it has
// the key of the peer's present process as soon as Server.Recv would.
type Edge struct {
	s    *Server
	peer cluster.Device
	name string

	out rendezvous.Key // this task is the sender
	// in has the key of the peer as the sender, from the first receive on. It is nil in an
	// Edge for one call.
	in *atomic.Pointer[rendezvous.Key]
	// checked is the cluster that has the peer as a destination; nil in an Edge for one call.
	checked *atomic.Pointer[membership.Snapshot]
}

// Edge prepares a name between this task and a task or device. A peer that is not in the
// cluster, and a device that the task is known not to have, is NotFound. A name that is empty or
// has a semicolon is InvalidArgument. The peer need not be up.
func (s *Server) Edge(peer, name string) (*Edge, error) {
	e := &Edge{s: s, name: name, in: new(atomic.Pointer[rendezvous.Key]), checked: new(atomic.Pointer[membership.Snapshot])}
	if err := e.makeOut("Edge", peer); err != nil {
		return nil, err
	}
	return e, nil
}

// Peer returns the device at the other end.
func (e *Edge) Peer() cluster.Device { return e.peer }

// Name returns the name of the values.
func (e *Edge) Name() string { return e.name }

// makeOut checks the peer as a destination, and makes the key of what is sent to it.
func (e *Edge) makeOut(method, peer string) (err error) {
	if e.peer, err = device(peer); err != nil {
		return err
	}
	if err = e.s.checkDestination(method, e.name, e.peer); err != nil {
		return err
	}
	e.out, err = rendezvous.NewKey(e.s.Device(), e.s.incarnation, e.peer, e.name, rendezvous.FrameIter{})
	return err
}

// setSource checks the peer as a source.
func (e *Edge) setSource(method, peer string) (err error) {
	if e.peer, err = device(peer); err != nil {
		return err
	}
	return e.s.checkSource(method, e.name, e.peer)
}

// inKey returns the key of what a process of the peer sends here.
func (e *Edge) inKey(incarnation uint64) (rendezvous.Key, error) {
	if e.in == nil {
		return rendezvous.NewKey(e.peer, incarnation, e.s.Device(), e.name, rendezvous.FrameIter{})
	}
	if k := e.in.Load(); k != nil && k.SrcIncarnation() == incarnation {
		return *k, nil
	}
	k, err := rendezvous.NewKey(e.peer, incarnation, e.s.Device(), e.name, rendezvous.FrameIter{})
	if err == nil {
		e.in.Store(&k)
	}
	return k, err
}

// checkOut is the part of the check of a destination whose result may change: a peer has
// listed its devices meanwhile, or the cluster is another one. It returns the cluster.
func (e *Edge) checkOut(method string) (*membership.Snapshot, error) {
	now := e.s.members.Now()
	if e.checked.Load() == now && e.peer == cluster.DeviceOf(e.peer.Task) {
		return now, nil
	}
	err := e.s.checkDestination(method, e.name, e.peer)
	if err == nil {
		e.checked.Store(now)
	}
	return now, err
}

// checkIn refuses a receive from a task that has left the cluster.
func (e *Edge) checkIn(method string) error {
	if e.s.members.Now().Left(e.peer.Task) {
		return leftError(method, e.name, e.peer, e.s.Device(), e.peer.Task)
	}
	return nil
}

// Send is Server.Send to the peer.
func (e *Edge) Send(step int64, t *tensor.Tensor) error { return e.send(step, t, false) }

// SendDead sends a dead value: the branch that should have computed it was not taken.
func (e *Edge) SendDead(step int64) error { return e.send(step, nil, true) }

func (e *Edge) send(step int64, t *tensor.Tensor, dead bool) error {
	in, err := e.checkOut("Send")
	if err != nil {
		return err
	}
	return e.s.checkSent(in, step, e.peer.Task, e.s.manager.Find(step).Send(e.out, rendezvous.Args{}, t, dead))
}

// SendWait is Server.SendWait to the peer.
func (e *Edge) SendWait(ctx context.Context, step int64, t *tensor.Tensor) (*rendezvous.Delivery, error) {
	in, err := e.checkOut("SendWait")
	if err != nil {
		return nil, err
	}
	d, err := e.s.manager.Find(step).SendWait(ctx, e.out, rendezvous.Args{}, t, false)
	if err = e.s.checkSent(in, step, e.peer.Task, err); err != nil {
		return nil, err
	}
	return d, nil
}

// Recv is Server.Recv from the peer.
func (e *Edge) Recv(ctx context.Context, step int64) (rendezvous.Value, error) {
	return e.recv(ctx, step, rendezvous.Args{})
}

func (e *Edge) recv(ctx context.Context, step int64, args rendezvous.Args) (v rendezvous.Value, err error) {
	if err := e.checkIn("Recv"); err != nil {
		return v, err
	}
	n, ok := e.s.incarnations.Known(e.peer)
	if !ok {
		if n, err = e.s.incarnations.Request(ctx, step, e.name, e.peer); err != nil {
			return v, e.s.named(ctx, err, step, "Recv", e.peer, e.name)
		}
	}
	v, err = e.recvFrom(ctx, step, n, args)
	if !ok || !e.s.incarnations.Outdated(e.peer, err) {
		return v, err
	}
	present, askErr := e.s.incarnations.Request(ctx, step, e.name, e.peer)
	switch {
	case askErr != nil:
		return v, e.s.named(ctx, askErr, step, "Recv", e.peer, e.name)
	case present == n:
		return v, err
	}
	return e.recvFrom(ctx, step, present, args)
}

// recvFrom receives from the process of the peer with this incarnation.
func (e *Edge) recvFrom(ctx context.Context, step int64, incarnation uint64, args rendezvous.Args) (v rendezvous.Value, err error) {
	key, err := e.inKey(incarnation)
	if err != nil {
		return v, err
	}
	v, err = e.s.manager.Find(step).Recv(ctx, key, args)
	e.s.incarnations.NoteResult(ctx, step, e.peer, incarnation, err)
	return v, e.explain(ctx, step, key, err)
}

// RecvAsync is Server.RecvAsync from the peer.
func (e *Edge) RecvAsync(ctx context.Context, step int64, done func(rendezvous.Value, error)) {
	e.recvElsewhere(ctx, step, rendezvous.Args{}, done)
}

// recvElsewhere is RecvAsync with the receiver's Args: done runs neither here nor on the
// goroutine of the sender.
func (e *Edge) recvElsewhere(ctx context.Context, step int64, args rendezvous.Args, done func(rendezvous.Value, error)) {
	if e.peer.Task == e.s.task { // the rendezvous calls done on the goroutine of the sender, or here
		e.start(ctx, step, e.s.incarnation, args, func(v rendezvous.Value, err error) {
			e.s.callbacks.run(func() { done(v, err) })
		})
		return
	}
	if err := e.checkIn("RecvAsync"); err != nil {
		e.s.callbacks.run(func() { done(rendezvous.Value{}, err) })
		return
	}
	n, ok := e.s.incarnations.Known(e.peer)
	if !ok {
		e.awaitThenRecv(ctx, step, func(n uint64) { e.recvAsyncFrom(ctx, step, n, args, done) }, done)
		return
	}
	e.recvAsyncFrom(ctx, step, n, args, func(v rendezvous.Value, err error) {
		if !e.s.incarnations.Outdated(e.peer, err) {
			done(v, err)
			return
		}
		e.awaitThenRecv(ctx, step, func(present uint64) {
			if present == n || present == 0 {
				e.s.callbacks.run(func() { done(v, err) }) // the first error says what was wrong
				return
			}
			e.recvAsyncFrom(ctx, step, present, args, done)
		}, done)
	})
}

// awaitThenRecv requests the incarnation of the peer and calls recv with it. recv must not block. After an error it calls done
// instead. Close waits for it.
func (e *Edge) awaitThenRecv(ctx context.Context, step int64, recv func(uint64), done func(rendezvous.Value, error)) {
	e.s.callbacks.enter()
	e.s.incarnations.Await(ctx, step, e.name, e.peer, func(n uint64, err error) {
		defer e.s.callbacks.leave()
		if err == nil {
			recv(n)
			return
		}
		e.s.callbacks.run(func() { done(rendezvous.Value{}, e.s.named(ctx, err, step, "RecvAsync", e.peer, e.name)) })
	})
}

// recvAsyncFrom receives from the process of the peer with this incarnation. done does not run
// here. The transport calls it on a goroutine of its own; what fails before may call it here, and
// is moved to another one.
func (e *Edge) recvAsyncFrom(ctx context.Context, step int64, incarnation uint64, args rendezvous.Args, done func(rendezvous.Value, error)) {
	var returned atomic.Bool
	e.start(ctx, step, incarnation, args, func(v rendezvous.Value, err error) {
		if returned.Load() {
			done(v, err)
			return
		}
		e.s.callbacks.run(func() { done(v, err) })
	})
	returned.Store(true)
}

// start receives from the process of the peer with this incarnation. done may run here.
func (e *Edge) start(ctx context.Context, step int64, incarnation uint64, args rendezvous.Args, done func(rendezvous.Value, error)) {
	key, err := e.inKey(incarnation)
	if err != nil {
		done(rendezvous.Value{}, err)
		return
	}
	e.s.manager.Find(step).RecvAsync(ctx, key, args, func(v rendezvous.Value, _ rendezvous.Args, err error) {
		e.s.incarnations.NoteResult(ctx, step, e.peer, incarnation, err)
		done(v, e.explain(ctx, step, key, err))
	})
}
