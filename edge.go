package tryst

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Edge is a prepared name between this task and a peer, for values that go in many steps: the names
// are checked and the key is made once. Its methods are those of Step, with the step as an argument;
// of a step of another server only the id counts. It follows a peer that restarts. It is safe for
// concurrent use and needs no Close.
type Edge struct{ e *server.Edge }

// Edge prepares a name between this task and the task or device peer. A peer that is not in the
// cluster, and a device that the task is known not to have, is NotFound; an empty name, or one with
// a semicolon, is InvalidArgument. The peer need not be up.
func (s *Server) Edge(peer, name string) (*Edge, error) {
	e, err := s.s.Edge(peer, name)
	if err != nil {
		return nil, err
	}
	return &Edge{e}, nil
}

// Name returns the name of the values.
func (e *Edge) Name() string { return e.e.Name() }

// Peer returns the device at the other end, such as "/job:worker/replica:0/task:1/device:CPU:0".
func (e *Edge) Peer() string { return e.e.Peer().String() }

// Send is Step.Send to the peer.
func (e *Edge) Send(st *Step, t *tensor.Tensor) error { return e.e.Send(st.id, t) }

// SendWait is Step.SendWait to the peer.
func (e *Edge) SendWait(ctx context.Context, st *Step, t *tensor.Tensor) (*Delivery, error) {
	return e.e.SendWait(ctx, st.id, t)
}

// SendDead is Step.SendDead to the peer.
func (e *Edge) SendDead(st *Step) error { return e.e.SendDead(st.id) }

// Recv is Step.Recv from the peer.
func (e *Edge) Recv(ctx context.Context, st *Step) (Value, error) {
	return value(e.e.Recv(ctx, st.id))
}

// RecvAsync is Step.RecvAsync from the peer.
func (e *Edge) RecvAsync(ctx context.Context, st *Step, done func(Value, error)) {
	e.e.RecvAsync(ctx, st.id, func(v rendezvous.Value, err error) { done(value(v, err)) })
}

// RecvInto is Step.RecvInto from the peer.
func (e *Edge) RecvInto(ctx context.Context, st *Step, dst *tensor.Tensor) (Filled, error) {
	return e.e.RecvInto(ctx, st.id, dst)
}

// RecvIntoAsync is Step.RecvIntoAsync from the peer.
func (e *Edge) RecvIntoAsync(ctx context.Context, st *Step, dst *tensor.Tensor, done func(Filled, error)) {
	e.e.RecvIntoAsync(ctx, st.id, dst, done)
}
