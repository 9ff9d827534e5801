package tryst

import (
	"context"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Value is the result of a receive. The receiver releases its tensor.
type Value = rendezvous.Value

// Step is one run, within which tensors are sent and received by name. Both sides
// use the same id, which must not be used again after Close. A Step is safe for
// concurrent use.
type Step struct {
	s  *server.Server
	id int64

	end atomic.Pointer[server.StepEnd] // made by the first Done
}

// Step returns the step with the given id. A step starts when it is first used,
// here or at a peer.
func (s *Server) Step(id int64) *Step { return &Step{s: s.s, id: id} }

// Send sends t under name to the task or device to, such as
// "/job:worker/replica:0/task:1". It never blocks: the value waits until it is
// requested or the step ends. Send takes a reference of its own to t; the caller
// keeps its own. The memory of t must not be written to from now on. Values under
// one name are received in the order in which they were sent. A task that is not
// in the cluster, and a device that the task is known not to have, is NotFound.
func (st *Step) Send(to, name string, t *tensor.Tensor) error {
	return st.s.Send(st.id, to, name, t, false)
}

// SendDead sends a dead value under name: the branch that should have computed the
// value was not taken. The receiver gets Value.Dead.
func (st *Step) SendDead(to, name string) error {
	return st.s.Send(st.id, to, name, nil, true)
}

// Recv waits for the next value that the task or device from sends here under
// name. If ctx ends, Recv returns and no value is consumed. Over verbs the calling
// goroutine polls for its own value, so Recv has less latency than RecvAsync.
func (st *Step) Recv(ctx context.Context, from, name string) (Value, error) {
	return st.s.Recv(ctx, st.id, from, name)
}

// RecvAsync is Recv without waiting. done runs exactly once, on a goroutine that
// is neither the caller's nor the sender's. It may block.
func (st *Step) RecvAsync(ctx context.Context, from, name string, done func(Value, error)) {
	st.s.RecvAsync(ctx, st.id, from, name, done)
}

// Rendezvous returns the rendezvous of the step, for callers that build their own
// keys, such as keys of processes that are in no cluster.
func (st *Step) Rendezvous() rendezvous.Rendezvous { return st.s.Rendezvous(st.id) }

// Done returns a channel that is closed when the step has ended: by Close or Abort, by the end of
// the server, or because a peer ended or aborted it here, as a TensorFlow master does. A step that
// is used for the first time starts.
func (st *Step) Done() <-chan struct{} {
	if st.end.Load() == nil {
		st.end.CompareAndSwap(nil, st.s.StepEnd(st.id))
	}
	return st.end.Load().Done()
}

// Err returns nil until the step has ended. Then it returns the reason, which waiting calls get,
// too: the error of Abort, or Aborted.
func (st *Step) Err() error {
	if end := st.end.Load(); end != nil {
		return end.Err()
	}
	return st.s.StepErr(st.id)
}

// Abort ends the step with err: waiting and later calls fail with it, here and at
// peers that request its values. Only the first error counts.
func (st *Step) Abort(err error) { st.s.AbortStep(st.id, err) }

// Close ends the step. Values that were not received are released, and waiting
// calls end with Aborted. Closing twice is harmless.
func (st *Step) Close() { st.s.EndStep(st.id) }
