package delivery

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Conn carries requests to one peer, whatever number of network connections it
// needs for that. Its methods may be called from many goroutines at once.
//
// Ids of receives are opaque to a connection. It carries them, and confirms the
// batches of Ack and Cancel.
type Conn interface {
	// Hello asks the peer for its identity. It waits for the peer to come up until
	// ctx ends, and then returns why the peer did not. Its error is a *LostError when
	// the peer was reached and has not answered.
	Hello(ctx context.Context) (Peer, error)

	// Begin begins an attempt of t and does not block. The connection may read the
	// exported fields of t until Wait of the attempt has returned.
	Begin(t *Transfer) Attempt

	// Ack acknowledges the responses to ids: the peer may release them. Its error and
	// that of Cancel are a *LostError when the peer has not answered. Both return when
	// the peer has confirmed the batch, when the connection has ended, or with ctx.
	Ack(ctx context.Context, ids []uint64) error

	// Cancel cancels receives at the peer.
	Cancel(ctx context.Context, ids []uint64) error
}

// Attempt is one attempt of a transfer at its connection.
type Attempt interface {
	// Wait blocks until the attempt has its outcome. It may poll meanwhile. When ctx
	// ends first the attempt is dropped, and its outcome is a *ReceiverError. Wait is
	// called exactly once. The caller releases the tensor of the value. An error is
	//   - a *LostError when the attempt has ended without a response,
	//   - a *RestartedError when the peer is another process than the one asked,
	//   - a *FallbackError when the connection has another route and wants the next
	//     attempt to take it,
	//   - a *MovedError when the connection has a better route by now, and wants the next
	//     attempt to take that,
	//   - a *ReceiverError when this side cannot take the value,
	//   - the peer's own error otherwise.
	Wait(ctx context.Context) (rendezvous.Value, error)

	// Notify arranges that ready is called once when there is an outcome, and returns
	// true: Wait does not block from then on. ready may run before Notify returns, on
	// any goroutine, with locks of the connection held; it must not block. Notify
	// returns false when nothing makes progress without a goroutine in Wait.
	Notify(ready func()) bool

	// Drop ends the attempt early: Wait returns soon. It does not block, and does
	// nothing after the attempt has ended.
	Drop()
}

// Peer is the identity of the process at the other end of a connection.
type Peer struct {
	// Tryst reports that the peer keeps responses, so that a receive can be requested
	// again. Without it the other fields are zero.
	Tryst bool
	// Incarnation is the random number that the process chose at its start.
	Incarnation uint64
}

// Partial is the part of a large tensor that has arrived. The transfer owns it, and
// releases the memory when it ends without the value, after its last attempt.
type Partial struct {
	// Buffer is the destination; nil when nothing has arrived.
	Buffer *tensor.Buffer
	// Bytes is how much of it, from its beginning, is valid.
	Bytes int64
	// State belongs to the connection.
	State any
}

// Drop releases what has arrived. It may call the owner of the memory.
func (p *Partial) Drop() { p.dropBy(func(reclaim func()) { reclaim() }) }

// dropBy is Drop for a caller with locks. run is as in tensor.Buffer.ReleaseBy.
func (p *Partial) dropBy(run func(func())) {
	if p.Buffer != nil {
		p.Buffer.ReleaseBy(run)
	}
	*p = Partial{}
}

// LostError reports that a request has ended without the peer's response: its
// connection was lost, or something between the two has ended it. Whether the peer
// has received the request is not known.
type LostError struct {
	Err error
	// Unsent reports that no request of the attempt has left this process, so no process of the
	// peer has received it.
	Unsent bool
}

func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the connection.
func (e *LostError) Unwrap() error { return e.Err }

// FallbackError reports that an attempt has ended without a response because its
// route cannot carry it (no registered memory is left, the key is longer than a
// message), and that the connection has another route.
type FallbackError struct{ Err error }

func (e *FallbackError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *FallbackError) Unwrap() error { return e.Err }

// MovedError reports that an attempt has ended without a response because there is a better
// route to the same process. The connection chooses the route of the next attempt.
type MovedError struct{ Err error }

func (e *MovedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *MovedError) Unwrap() error { return e.Err }

// payloadMoved marks the error of Moved on the wire.
const payloadMoved = "type.googleapis.com/tryst.Moved"

// Moved is the response to a request that waits for its value on a channel which a better one
// replaces: the requester is to send it again there. The requester's connection turns it into a
// *MovedError (IsMoved).
func Moved(why error) *status.Error {
	return status.Errorf(status.Unavailable, "the request is to be sent again: %w", why).WithPayload(payloadMoved, nil)
}

// IsMoved reports whether err is what Moved returned at the peer.
func IsMoved(err error) bool {
	var s *status.Error
	if !errors.As(err, &s) {
		return false
	}
	_, ok := s.Payload(payloadMoved)
	return ok
}

// ReceiverError reports that this side cannot take the value: it has no memory for
// it, cannot decode it, or does not want it any more. The receive ends with Err, and
// is cancelled, so that the value goes back to the head of its key at the peer.
type ReceiverError struct{ Err error }

func (e *ReceiverError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ReceiverError) Unwrap() error { return e.Err }

// ErrProcessGone is in the chain of the error of a receive whose request may have reached a
// process of the peer that is gone. The value may be lost with that process. Without
// ErrProcessGone, Aborted because of a restart means that no request of the receive has reached
// an earlier process.
var ErrProcessGone = errors.New("what it had sent is lost")

// RestartedError reports that the process that answered is not the one that the request is for.
type RestartedError struct {
	Err error
	// Reached reports that an earlier request of the same attempt was answered by the process
	// that it was for. A value may have been sent there, and is lost with that process.
	Reached bool
}

func (e *RestartedError) Error() string { return e.Err.Error() }

// Unwrap returns the peer's error.
func (e *RestartedError) Unwrap() error { return e.Err }

// UndecidedError refuses a request without any effect; it may be repeated. A
// connection sends it such that the requester takes its attempt for lost.
type UndecidedError struct{ Err error }

func (e *UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *UndecidedError) Unwrap() error { return e.Err }

func undecided(format string, args ...any) error {
	return &UndecidedError{Err: status.Errorf(status.Unavailable, format, args...)}
}

// payloadOtherProcess marks the error of OtherProcess on the wire.
const payloadOtherProcess = "type.googleapis.com/tryst.OtherProcess"

// OtherProcess is the response to a request that was meant for an earlier process of
// the responder's name: what that one had is lost. The requester's connection turns it
// into a *RestartedError (IsOtherProcess).
func OtherProcess(asked, is uint64) *status.Error {
	return status.Errorf(status.Aborted,
		"the request is for the process with incarnation %016x; this one has %016x, and nothing of what that one had", asked, is).
		WithPayload(payloadOtherProcess, nil).WithPayload(status.PayloadPossiblyRestarted, nil)
}

// IsOtherProcess reports whether err is what OtherProcess returned at the peer.
func IsOtherProcess(err error) bool {
	var s *status.Error
	if !errors.As(err, &s) {
		return false
	}
	_, ok := s.Payload(payloadOtherProcess)
	return ok
}
