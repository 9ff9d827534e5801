package server

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// known returns the incarnation of a device if it is known.
func (s *Server) known(d cluster.Device) (uint64, bool) {
	if d.Task == s.task {
		return s.incarnation, true
	}
	return s.devices.known(d)
}

// noteResult is called with the result of a receive from a device. An error makes the
// incarnation suspect: the peer may be restarting, and it reports even that in several ways.
// Errors for this side's reasons say nothing about the peer.
func (s *Server) noteResult(ctx context.Context, step int64, src cluster.Device, incarnation uint64, err error) {
	if err != nil && !s.ownReason(ctx, step, err) {
		s.devices.suspect(src, incarnation)
	}
}

// ownReason reports whether a receive failed for a reason of this side: its context or its step
// has ended, there is no memory for the value, or it does not fit the caller's memory. DataLoss is
// what the present process of the peer says of a value that it had.
func (s *Server) ownReason(ctx context.Context, step int64, err error) bool {
	switch status.CodeOf(err) {
	case status.Cancelled, status.DeadlineExceeded:
		if ctx.Err() != nil {
			return true
		}
	case status.ResourceExhausted, status.DataLoss, status.InvalidArgument, status.FailedPrecondition, status.Unimplemented:
		return true
	}
	return s.manager.Err(step) != nil
}

// outdated reports whether a receive ended with err only because its key names an earlier
// process of the peer, which the request has not reached. Then nothing is lost if the request goes to
// the present process.
func (s *Server) outdated(src cluster.Device, err error) bool {
	if src.Task == s.task || status.CodeOf(err) != status.Aborted || errors.Is(err, transport.ErrProcessGone) {
		return false
	}
	_, restarted := status.From(err).Payload(status.PayloadPossiblyRestarted)
	return restarted
}

// incarnationOf requests the incarnation of a peer's device, for a receive of a step. The end of
// the step or of ctx ends the wait, and so does the peer timeout.
func (s *Server) incarnationOf(ctx context.Context, step int64, d cluster.Device) (uint64, error) {
	type answer struct {
		n   uint64
		err error
	}
	c := make(chan answer, 1)
	s.awaitIncarnation(ctx, step, d, func(n uint64, err error) { c <- answer{n, err} })
	a := <-c
	return a.n, a.err
}

// awaitIncarnation requests the incarnation of a device and calls done with it, once, perhaps
// before it returns. Receives that wait for the same device get it in the order of their calls,
// and before later receives know it. done must not block. A server that is closing calls it at
// once, with 0: the receive fails, since every step has ended.
func (s *Server) awaitIncarnation(ctx context.Context, step int64, d cluster.Device, done func(uint64, error)) {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		done(0, nil)
		return
	}
	in := s.manager.Find(step)
	w := &incarnationWait{known: &s.devices, device: d, timeout: s.cfg.PeerTimeout}
	w.done = func(n uint64, err error) {
		in.DeregisterCall(w)
		switch {
		case err == nil:
		case in.Err() != nil:
			err = in.Err()
		case ctx.Err() != nil:
			err = status.Errorf(status.CodeOf(ctx.Err()), "the context of the receive ended before %s was reached: %s", d.Task, status.From(err).Message()).Derived()
		}
		done(n, err)
	}
	n, known, run := s.devices.wait(ctx, w)
	if run != nil {
		s.work.Add(1)
	}
	s.mu.Unlock()
	if known {
		done(n, nil)
		return
	}
	if run != nil {
		go func() {
			defer s.work.Done()
			run(s.deviceIncarnation)
		}()
	}
	w.watch(ctx)
	if err := in.RegisterCall(w); err == nil && w.ended() { // done came before, and has deregistered nothing
		in.DeregisterCall(w)
	}
}

// deviceIncarnation requests the incarnation over any route that reaches the peer. again reports
// whether the peer may answer later.
func (s *Server) deviceIncarnation(ctx context.Context, d cluster.Device) (n uint64, again bool, err error) {
	conn, err := s.connTo(d.Task)
	if err != nil {
		return 0, false, err
	}
	n, err = s.requestIncarnation(ctx, conn, d)
	_, lost := errors.AsType[*transport.LostError](err)
	return n, lost || ctx.Err() != nil || status.CodeOf(err) == status.Unavailable, err
}

// requestIncarnation sends one request. A Tryst process answers Hello; it has one device, with the
// incarnation of the process. Any other worker is TensorFlow's and answers GetStatus.
func (s *Server) requestIncarnation(ctx context.Context, conn transport.Conn, d cluster.Device) (uint64, error) {
	peer, err := conn.Hello(ctx)
	if err != nil {
		return 0, err
	}
	if peer.Tryst && d == cluster.DeviceOf(d.Task) {
		s.devices.list(d.Task, d)
		return peer.Incarnation, nil
	}
	if peer.Tryst {
		s.devices.list(d.Task, cluster.DeviceOf(d.Task))
		return 0, status.Errorf(status.NotFound, "%s has no device %s", d.Task, d)
	}
	w, err := s.conns.Worker(d.Task)
	if err != nil {
		return 0, err
	}
	resp, err := w.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		return 0, err
	}
	var has []cluster.Device
	n, found := uint64(0), false
	for _, a := range resp.GetDeviceAttributes() {
		other, err := cluster.ParseDevice(a.GetName())
		if err != nil {
			continue
		}
		has = append(has, other)
		if other == d {
			n, found = a.GetIncarnation(), true
		}
	}
	s.devices.list(d.Task, has...)
	if found {
		return n, nil
	}
	return 0, status.Errorf(status.NotFound, "%s has no device %s", d.Task, d)
}

// connTo returns the connection to a task, over verbs or gRPC.
func (s *Server) connTo(task cluster.Task) (transport.Conn, error) {
	if s.rdma != nil {
		return s.rdma.transport.Conn(task)
	}
	return s.transport.Conn(task)
}
