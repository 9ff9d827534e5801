package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/worker"
)

// retryDelay is the pause before a peer is asked again whose connection was lost
// while it was asked: soon back after a restart, and no storm at one that takes
// connections and drops them.
const retryDelay = 100 * time.Millisecond

// known is the incarnation of a device, as far as it is known.
func (s *Server) known(d cluster.Device) (uint64, bool) {
	if d.Task == s.task {
		return s.incarnation, true
	}
	return s.devices.known(d)
}

// ended notes how a receive from a device has ended: the peer may have been restarted. The
// end of a step says nothing of that.
func (s *Server) noteResult(src cluster.Device, incarnation uint64, err error) {
	if status.CodeOf(err) != status.Aborted {
		return
	}
	if _, restarted := status.From(err).Payload(status.PayloadPossiblyRestarted); restarted {
		s.devices.suspect(src, incarnation)
	}
}

// incarnationCall is a peer that is asked for its incarnation, for a receive of a step.
type incarnationCall struct{ cancel context.CancelCauseFunc }

// Abort implements rendezvous.Call.
func (l *incarnationCall) Abort(err error) { l.cancel(err) }

// incarnationOf asks a peer for the incarnation of its device, for a receive of a step that has
// a name for it. The end of the step or of ctx ends that.
func (s *Server) incarnationOf(ctx context.Context, step int64, d cluster.Device) (uint64, error) {
	in := s.manager.Find(step)
	asks, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call := &incarnationCall{cancel}
	if err := in.RegisterCall(call); err != nil {
		return 0, err
	}
	defer in.DeregisterCall(call)
	n, err := s.deviceIncarnation(asks, d)
	switch {
	case err == nil:
		return n, nil
	case in.Err() != nil:
		return 0, in.Err()
	case ctx.Err() != nil:
		return 0, status.Errorf(status.CodeOf(ctx.Err()), "the context of the receive ended before %s was reached: %s", d.Task, status.From(err).Message()).Derived()
	}
	return 0, err
}

// deviceIncarnation asks a peer who it is, by any way that reaches it, and waits for one that is
// not up for as long as the peer timeout.
func (s *Server) deviceIncarnation(ctx context.Context, d cluster.Device) (uint64, error) {
	wire, err := s.connTo(d.Task)
	if err != nil {
		return 0, err
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.PeerTimeout)
	defer cancel()
	var why error // the last one that is not the end of the wait
	for {
		n, err := s.requestIncarnation(wait, wire, d)
		_, lost := errors.AsType[*transport.LostError](err)
		switch {
		case err == nil:
			s.devices.learn(d, n)
			return n, nil
		case wait.Err() != nil:
			if why == nil {
				why = err
			}
			return 0, status.Errorf(status.Unavailable, "%s was not reached for %v: %s", d.Task, s.cfg.PeerTimeout, status.From(why).Message())
		case !lost && status.CodeOf(err) != status.Unavailable:
			return 0, err
		}
		why = err
		select {
		case <-time.After(retryDelay):
		case <-wait.Done():
		}
	}
}

// requestIncarnation asks a peer once. A Tryst process has one device, whose incarnation is its
// own; any other worker says GetStatus, which is TensorFlow's.
func (s *Server) requestIncarnation(ctx context.Context, wire transport.Wire, d cluster.Device) (uint64, error) {
	who, err := wire.Hello(ctx)
	if err != nil {
		return 0, err
	}
	if who.Tryst && d == worker.Device(d.Task) {
		return who.Incarnation, nil
	}
	if who.Tryst {
		return 0, status.Errorf(status.NotFound, "%s has no device %s", d.Task, d)
	}
	peer, err := s.conns.Worker(d.Task)
	if err != nil {
		return 0, err
	}
	resp, err := peer.GetStatus(ctx, &tfpb.GetStatusRequest{})
	if err != nil {
		return 0, err
	}
	for _, a := range resp.GetDeviceAttributes() {
		if other, err := cluster.ParseDevice(a.GetName()); err == nil && other == d {
			return a.GetIncarnation(), nil
		}
	}
	return 0, status.Errorf(status.NotFound, "%s has no device %s", d.Task, d)
}

// connTo is the way to a task: over verbs or gRPC.
func (s *Server) connTo(task cluster.Task) (transport.Wire, error) {
	if s.rdma != nil {
		return s.rdma.transport.Conn(task)
	}
	return s.transport.Conn(task)
}

// incarnations remembers those of peers' devices.
type incarnations struct {
	mu sync.Mutex // guards m
	m  map[cluster.Device]incarnation
}

// incarnation is what is known of a device.
type incarnation struct {
	n       uint64
	suspect bool // it may belong to an earlier process
}

func (i *incarnations) known(d cluster.Device) (n uint64, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	is, ok := i.m[d]
	return is.n, ok && !is.suspect
}

func (i *incarnations) learn(d cluster.Device, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.m == nil {
		i.m = make(map[cluster.Device]incarnation)
	}
	i.m[d] = incarnation{n: n}
}

// doubt notes that an incarnation may be over: the next receive asks for it.
func (i *incarnations) suspect(d cluster.Device, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if is, ok := i.m[d]; ok && is.n == n {
		i.m[d] = incarnation{n: n, suspect: true}
	}
}
