package tryst

import (
	"context"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Step is one run, within which tensors are sent and received by name. Both sides use the same id,
// which is not negative, and must not be used again after Close. A Step is safe for concurrent use. It is a handle:
// Step(7) of a server is the same step each time.
//
// # The end of a step
//
// Each process that uses a step closes it, and this ends its own side only. A producer closes it when the
// consumers have all values (Delivery), since the others are released; a consumer, when it has received all.
// Abort is an earlier end for a reason; Close follows it.
//
// Waiting and later calls of this process fail with the error that ended its side: that of Abort, or Aborted
// after Close. A peer learns of the end by its receives alone: those of values of this process fail with the
// same error. So a consumer learns that its producer has ended or aborted the step, and a producer does not
// learn it of its consumer, unless it receives something from it in the same step.
type Step struct {
	s  *server.Server
	id int64

	end atomic.Pointer[server.StepEnd] // made by the first Done
}

// Step returns the step with the given id. A step starts when it is first used, here or at a peer.
func (s *Server) Step(id int64) *Step { return &Step{s: s.s, id: id} }

// NewStep returns a step with a new id: a random positive number of 62 bits, so that practically no
// other step has it. The other processes need the id (ID) to take part. The process that begins the work
// makes the step, and sends its id in the call that begins the work, or as a tensor in a step whose id
// is agreed, such as step 0.
func (s *Server) NewStep() *Step { return s.Step(s.s.NewStepID()) }

// ID returns the id of the step.
func (st *Step) ID() int64 { return st.id }

// Send sends t under name to the task or device to, such as "/job:worker/task:1" or
// "/job:worker/task:1/device:CPU:0". It never blocks: the value waits until it is requested or the
// step ends. A producer that may run ahead of its consumer uses SendWait, or keeps all that was not
// received in memory.
//
// Send takes a reference of its own to t; the caller keeps its own, and may release it at once.
// Nobody may write to the memory of t until t.Buffer().Unique() reports true: the receiver has the
// value, or, if it is this process and so shares the memory, has released it. WaitUnique waits for
// that. Values under one name are received in the order in which they were sent.
//
// A task that is not in the cluster, and a device that the task is known not to have, is NotFound; a
// server without a Cluster may send to any. A step that has ended is the error that ended it. After
// an error nothing was sent.
func (st *Step) Send(to, name string, t *tensor.Tensor) error {
	return st.s.Send(st.id, to, name, t, false)
}

// SendWait is Send that waits for space, and says when the receiver has the value. It waits until
// what this step has sent to the task of to, and that task does not have yet, is within
// Config.Limits.SendBound together with t. A value larger than that goes alone. Calls go on in their
// order. Values of Send count, too, from the first SendWait of the step on. Each
// counts the bytes of its memory, 256 at least.
//
// If ctx ends before there is space, SendWait returns Cancelled or DeadlineExceeded and nothing was
// sent; otherwise its errors are those of Send. A consumer that is not there, or was killed, is no
// error: SendWait waits for space until ctx ends (Delivery says how to notice). The consumer must receive what was sent first: if it
// waits for a later value, with more than the bound between the two, both wait.
func (st *Step) SendWait(ctx context.Context, to, name string, t *tensor.Tensor) (*Delivery, error) {
	return st.s.SendWait(ctx, st.id, to, name, t, false)
}

// SendDead sends a dead value under name: the branch that should have computed the value was not
// taken. The receiver gets Value.Dead.
func (st *Step) SendDead(to, name string) error {
	return st.s.Send(st.id, to, name, nil, true)
}

// Recv waits for the next value that the task or device from sends here under name. The caller
// releases its tensor. If ctx ends, Recv returns Cancelled or DeadlineExceeded, and no value is
// consumed: the next receive gets it. A peer that is not reached for Config.PeerTimeout is
// Unavailable; one that is reached may take as long as ctx permits. After a break of the connection the request is
// sent again. When the peer has restarted, Recv ends with Aborted (ErrPeerRestarted) within a second after the new
// process listens, if the earlier one may have had the request: its value may be lost. A request that has reached no
// process goes to the new one. A step that has ended is the error that ended it (ErrStepEnded, ErrShutdown).
//
// Over verbs the calling goroutine polls for its own value, so Recv has less latency than RecvAsync.
func (st *Step) Recv(ctx context.Context, from, name string) (Value, error) {
	return value(st.s.Recv(ctx, st.id, from, name))
}

// RecvAsync is Recv without waiting. done runs exactly once, with the value or with the error.
//
// One rule holds for the callbacks of RecvAsync and RecvIntoAsync: each runs on a goroutine that is
// neither the caller's nor the sender's. So it may block, take locks that the caller holds, send,
// receive, and end the step. Server.Close waits for callbacks, so they must not call it. Callbacks of
// several receives may run at the same time, and in any order. Several receives of one name that wait
// at once may get its values in another order than that of their calls: over gRPC at any time, over
// verbs while the connection is made or breaks. Use a name for each if that matters.
func (st *Step) RecvAsync(ctx context.Context, from, name string, done func(Value, error)) {
	st.s.RecvAsync(ctx, st.id, from, name, func(v rendezvous.Value, err error) { done(value(v, err)) })
}

// RecvInto is Recv into the caller's own tensor, which must have the type and shape of the value. Any
// other value is InvalidArgument, which names both, and is not consumed (that of a sender that is not
// Tryst is lost). A dst of strings is InvalidArgument. Memory of Allocator is filled without a copy;
// see Filled.ZeroCopy.
//
// The caller keeps its reference to dst, which must be the only one: memory that was sent, or that
// another receive writes into, is FailedPrecondition. After a success it is the only one again: read
// dst, send it, or receive into it once more.
//
// After an error, which includes the end of ctx, the content of dst is undefined, and the peer may
// still write to it for some seconds. Until dst.Buffer().Unique() reports true do not read, write or
// send it; a RecvInto before that is FailedPrecondition. It may be released at any time.
func (st *Step) RecvInto(ctx context.Context, from, name string, dst *tensor.Tensor) (Filled, error) {
	return st.s.RecvInto(ctx, st.id, from, name, dst)
}

// RecvIntoAsync is RecvInto without waiting. done runs as that of RecvAsync.
func (st *Step) RecvIntoAsync(ctx context.Context, from, name string, dst *tensor.Tensor, done func(Filled, error)) {
	st.s.RecvIntoAsync(ctx, st.id, from, name, dst, done)
}

// Rendezvous returns the rendezvous of the step, for callers that build their own
// keys, such as keys of processes that are in no cluster. It does not check destinations: what is sent
// for a task that has left the cluster stays until the step ends.
func (st *Step) Rendezvous() rendezvous.Rendezvous { return st.s.Rendezvous(st.id) }

// Done returns a channel that is closed when the step has ended: by Close or Abort, by the end of
// the server, or because a peer ended or aborted it here, as a TensorFlow master does. The end of the
// step at a peer does not close it. A step that is used for the first time starts.
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

// Abort ends the step with err. Only the first error counts. "The end of a step" in Step says which calls fail,
// and what peers learn.
func (st *Step) Abort(err error) { st.s.AbortStep(st.id, err) }

// Close ends the step and releases the values that were not received. "The end of a step" in Step says when to
// call it, and what peers learn. Closing twice is harmless. A step that nobody closes takes memory until the
// server ends.
func (st *Step) Close() { st.s.EndStep(st.id) }
