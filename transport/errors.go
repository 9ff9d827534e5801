package transport

import (
	"errors"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/status"
)

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

// TaskLeft is the error of a call here for a task that has left the cluster.
func TaskLeft(task cluster.Task) *status.Error {
	return status.Errorf(status.NotFound, "%v has left the cluster", task).WithKind(status.ErrTaskLeft)
}

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
