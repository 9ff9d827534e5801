package server

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
	"github.com/tryst-rdma/tryst/worker"
)

// retryDelay is the pause before another request for an incarnation after a lost connection.
// It is short, since a restarted peer may be back soon, and prevents a storm of requests to a
// peer that accepts connections and drops them.
const retryDelay = 100 * time.Millisecond

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
// has ended, or there is no memory for the value.
func (s *Server) ownReason(ctx context.Context, step int64, err error) bool {
	switch status.CodeOf(err) {
	case status.Cancelled, status.DeadlineExceeded:
		if ctx.Err() != nil {
			return true
		}
	case status.ResourceExhausted:
		return true
	}
	return s.manager.Err(step) != nil
}

// outdated reports whether a receive ended with err only because its key names an earlier
// process of the peer, which the request has not reached. Nothing is lost, then, if the present
// process is asked.
func (s *Server) outdated(src cluster.Device, err error) bool {
	if src.Task == s.task || status.CodeOf(err) != status.Aborted || errors.Is(err, transport.ErrProcessGone) {
		return false
	}
	_, restarted := status.From(err).Payload(status.PayloadPossiblyRestarted)
	return restarted
}

// incarnationCall is a request for an incarnation on behalf of a receive of a step.
type incarnationCall struct{ cancel context.CancelCauseFunc }

// Abort implements rendezvous.Call.
func (l *incarnationCall) Abort(err error) { l.cancel(err) }

// incarnationOf requests the incarnation of a peer's device, for a receive of a step. The end of
// the step or of ctx ends the request.
func (s *Server) incarnationOf(ctx context.Context, step int64, d cluster.Device) (uint64, error) {
	in := s.manager.Find(step)
	request, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	call := &incarnationCall{cancel}
	if err := in.RegisterCall(call); err != nil {
		return 0, err
	}
	defer in.DeregisterCall(call)
	n, err := s.devices.request(request, d, s.deviceIncarnation)
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

// deviceIncarnation requests the incarnation over any route that reaches the peer. It waits for a
// peer that is not up, for at most the peer timeout.
func (s *Server) deviceIncarnation(ctx context.Context, d cluster.Device) (uint64, error) {
	conn, err := s.connTo(d.Task)
	if err != nil {
		return 0, err
	}
	wait, cancel := context.WithTimeout(ctx, s.cfg.PeerTimeout)
	defer cancel()
	var why error // the last error, except the end of wait
	for {
		n, err := s.requestIncarnation(wait, conn, d)
		_, lost := errors.AsType[*transport.LostError](err)
		switch {
		case err == nil:
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

// requestIncarnation sends one request. A Tryst process answers Hello; it has one device, with the
// incarnation of the process. Any other worker is TensorFlow's and answers GetStatus.
func (s *Server) requestIncarnation(ctx context.Context, conn transport.Conn, d cluster.Device) (uint64, error) {
	peer, err := conn.Hello(ctx)
	if err != nil {
		return 0, err
	}
	if peer.Tryst && d == worker.Device(d.Task) {
		s.devices.list(d.Task, d)
		return peer.Incarnation, nil
	}
	if peer.Tryst {
		s.devices.list(d.Task, worker.Device(d.Task))
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

// incarnations stores the incarnations of peers' devices.
type incarnations struct {
	mu       sync.Mutex // guards what follows
	m        map[cluster.Device]incarnation
	lists    map[cluster.Task][]cluster.Device      // of the tasks that have answered
	requests map[cluster.Device]*incarnationRequest // in progress
}

// incarnation is the incarnation of a device.
type incarnation struct {
	n       uint64
	suspect bool // it may belong to an earlier process
}

// incarnationRequest is a request for an incarnation, which all receives from the device wait
// for: after an error there may be thousands.
type incarnationRequest struct {
	done chan struct{} // closed when the request has ended, which sets the fields below
	n    uint64
	err  error
	left bool // the receive that made the request has ended
}

func (i *incarnations) known(d cluster.Device) (n uint64, ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.knownLocked(d)
}

func (i *incarnations) knownLocked(d cluster.Device) (n uint64, ok bool) {
	is, ok := i.m[d]
	return is.n, ok && !is.suspect
}

// list stores the devices of a task, as it has last listed them.
func (i *incarnations) list(task cluster.Task, has ...cluster.Device) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.lists == nil {
		i.lists = make(map[cluster.Task][]cluster.Device)
	}
	i.lists[task] = has
}

// lacks reports whether the task of a device has listed its devices without this one.
func (i *incarnations) lacks(d cluster.Device) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	has, ok := i.lists[d.Task]
	return ok && !slices.Contains(has, d)
}

// request returns the incarnation of a device: the known one, or else the result of ask. It
// calls ask unless another request for the device is in progress.
func (i *incarnations) request(ctx context.Context, d cluster.Device, ask func(context.Context, cluster.Device) (uint64, error)) (uint64, error) {
	for {
		i.mu.Lock()
		if n, ok := i.knownLocked(d); ok {
			i.mu.Unlock()
			return n, nil
		}
		r := i.requests[d]
		if r == nil {
			return i.askLocked(ctx, d, ask)
		}
		i.mu.Unlock()
		select {
		case <-r.done:
			if !r.left {
				return r.n, r.err
			}
		case <-ctx.Done():
			return 0, status.From(ctx.Err())
		}
	}
}

// askLocked makes a request and stores its result. It gives up i.mu.
func (i *incarnations) askLocked(ctx context.Context, d cluster.Device, ask func(context.Context, cluster.Device) (uint64, error)) (uint64, error) {
	r := &incarnationRequest{done: make(chan struct{})}
	if i.requests == nil {
		i.requests = make(map[cluster.Device]*incarnationRequest)
	}
	i.requests[d] = r
	i.mu.Unlock()
	if r.n, r.err = ask(ctx, d); r.err == nil {
		i.learn(d, r.n)
	} else {
		r.left = ctx.Err() != nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.requests, d)
	close(r.done)
	return r.n, r.err
}

func (i *incarnations) learn(d cluster.Device, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.m == nil {
		i.m = make(map[cluster.Device]incarnation)
	}
	i.m[d] = incarnation{n: n}
}

// suspect marks an incarnation as possibly outdated: the next receive requests it again.
func (i *incarnations) suspect(d cluster.Device, n uint64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if is, ok := i.m[d]; ok && is.n == n {
		i.m[d] = incarnation{n: n, suspect: true}
	}
}
