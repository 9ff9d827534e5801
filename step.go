package tryst

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Value is what a receive brings. The receiver releases its tensor.
type Value = rendezvous.Value

// Step is one run in which tensors meet by name. Both sides use the same id; it
// must not be used again after Close. A Step may be used from any goroutine.
type Step struct {
	s  *server.Server
	id int64
}

// Step returns the step with the given id. It begins to exist on first use,
// here or at a peer.
func (s *Server) Step(id int64) *Step { return &Step{s: s.s, id: id} }

// Send puts t under name for the task (or device) to, as
// "/job:worker/replica:0/task:1". It never blocks: the value waits until it is
// asked for, or until the step ends. Send takes a reference of its own to t,
// whose memory nobody writes to from now on; the caller keeps the one it has.
// Several values under one name are received in the order in which they were
// sent.
func (st *Step) Send(to, name string, t *tensor.Tensor) error {
	return st.s.Send(st.id, to, name, t, false)
}

// SendDead puts the word under name that no value will come: the branch that
// should have made it was not taken.
func (st *Step) SendDead(to, name string) error {
	return st.s.Send(st.id, to, name, nil, true)
}

// Recv waits for the next value that the task (or device) from sends here under
// name. The end of ctx ends the wait, and nothing is consumed. Over verbs its caller
// polls for its own value, which takes less time than to be called by another goroutine.
func (st *Step) Recv(ctx context.Context, from, name string) (Value, error) {
	return st.s.Recv(ctx, st.id, from, name)
}

// RecvAsync is Recv without waiting. done runs exactly once. For a value of
// another task it runs on a goroutine of its own; for one of this task on the
// goroutine that sends, or on the caller's, and must not block.
func (st *Step) RecvAsync(ctx context.Context, from, name string, done func(Value, error)) {
	st.s.RecvAsync(ctx, st.id, from, name, done)
}

// Rendezvous returns the step's table, for callers that build their keys
// themselves.
func (st *Step) Rendezvous() rendezvous.Rendezvous { return st.s.Rendezvous(st.id) }

// Abort ends the step with err: what waits in it and all later calls fail with
// it, and peers that ask for its values are told. The first error stays.
func (st *Step) Abort(err error) { st.s.AbortStep(st.id, err) }

// Close ends the step: values that nobody took are released, and what still
// waits ends with Aborted. Closing twice is harmless.
func (st *Step) Close() { st.s.EndStep(st.id) }
