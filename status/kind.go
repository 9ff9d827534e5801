package status

import "errors"

// The kinds of Aborted, for errors.Is. An error has at most one of them. They travel between processes as payloads
// (PROTOCOL.md section 4), so that the receiver of a value finds the kind that its sender's process has given.
var (
	// ErrPeerRestarted: another process has taken the place of the peer. What the earlier one had is lost.
	ErrPeerRestarted = errors.New("the peer has restarted")
	// ErrStepEnded: the step has ended, in this process or at the peer.
	ErrStepEnded = errors.New("the step has ended")
	// ErrShutdown: this process or the peer is shutting down.
	ErrShutdown = errors.New("the process is shutting down")
	// ErrTaskLeft: a task has left the cluster. Later calls for that task are NotFound, and of this kind, too.
	ErrTaskLeft = errors.New("the task has left the cluster")
)

// The payloads of the kinds, beside PayloadPossiblyRestarted. Their values are empty.
const (
	payloadStepEnded = "type.googleapis.com/tryst.StepEnded"
	payloadShutdown  = "type.googleapis.com/tryst.Shutdown"
	payloadTaskLeft  = "type.googleapis.com/tryst.TaskLeft"
)

// kinds has the payload of each kind. An error with several, such as a summary of a Group, is of the first one.
func kinds() [4]struct {
	kind error
	key  string
} {
	return [...]struct {
		kind error
		key  string
	}{
		{ErrPeerRestarted, PayloadPossiblyRestarted},
		{ErrStepEnded, payloadStepEnded},
		{ErrShutdown, payloadShutdown},
		{ErrTaskLeft, payloadTaskLeft},
	}
}

// WithKind returns a copy that is of one of the kinds of Aborted, and of no other.
func (e *Error) WithKind(kind error) *Error {
	for _, k := range kinds() {
		if k.kind == kind { //nolint:errorlint // the kinds themselves are compared
			e = e.WithPayload(k.key, nil)
		} else if _, ok := e.payloads[k.key]; ok {
			e = e.without(k.key)
		}
	}
	return e
}

// KindOf returns the kind of Aborted that err is of; nil when it is of none.
func KindOf(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.kind()
	}
	return nil
}

// kind returns the kind of an error. The members of a group learn of a restart by FailedPrecondition, as
// TensorFlow's do.
func (e *Error) kind() error {
	for _, k := range kinds() {
		if _, ok := e.payloads[k.key]; !ok {
			continue
		}
		if e.code == Aborted || e.code == FailedPrecondition && k.kind == ErrPeerRestarted || e.code == NotFound && k.kind == ErrTaskLeft { //nolint:errorlint // the kinds themselves are compared
			return k.kind
		}
	}
	return nil
}
