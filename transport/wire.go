package transport

import (
	"context"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Wire carries requests to one peer. Its methods block until they have an
// outcome or ctx ends, and may be called from many goroutines at once.
type Wire interface {
	// Hello asks the peer who it is. It waits for the peer to come up, at
	// most as long as ctx lives, and then says why it did not. Its error is a
	// *LostError when the peer was reached and has not answered.
	Hello(ctx context.Context) (Peer, error)

	// Recv makes one attempt of a receive. Its error is a *LostError when the
	// attempt has ended without the peer's answer, a *RestartedError when
	// the peer is another process than the one asked, an *ElsewhereError when
	// the wire wants to be asked again another way, a *ReceiverError when this
	// side cannot take the value, and the peer's own error otherwise. The caller
	// releases the value's tensor.
	Recv(ctx context.Context, a *Attempt) (rendezvous.Value, error)

	// Finish tells the peer that it may let go the answers to ids. Its error and
	// that of Cancel are a *LostError when the peer has not answered.
	Finish(ctx context.Context, ids []uint64) error

	// Cancel tells the peer that ids are not wanted any more.
	Cancel(ctx context.Context, ids []uint64) error
}

// Starter is a Wire that can begin an attempt without a goroutine of its own: its
// request is on its way before anybody has been woken to wait for the answer.
type Starter interface {
	Wire

	// Start begins an attempt and does not block. Nil says that it was not
	// begun, and that Recv has to make it. The attempt is the wire's until Wait
	// has returned.
	Start(a *Attempt) Pending

	// MuchKept is how many bytes that the peer keeps for answers which have arrived
	// make it worth a message to say so (Finish), when no request follows within
	// 200 us. Else the ids wait 5 ms for one to ride on.
	MuchKept() int64
}

// Pending is an attempt that a Starter has under way.
type Pending interface {
	// Wait blocks until the attempt has its outcome, which is as that of
	// Wire.Recv. It is called once; then the Pending is the Starter's again.
	Wait() (rendezvous.Value, error)

	// Await waits until there is an outcome and Wait will not block, and returns true.
	// When ctx ends before, it returns false; the attempt goes on, and Wait is to be
	// called all the same, as a rule after Drop. It is called once at most, and not
	// with Watch.
	Await(ctx context.Context) bool

	// Watch has ready called once, when there is an outcome and Wait will not block;
	// then it returns true. It returns false where whoever waits does part of the
	// work: then Wait is to be called soon. ready may run before Watch returns, on
	// any goroutine, with locks held: it must not block, nor call back.
	Watch(ready func()) bool

	// Drop says that the receive id is not wanted any more: Wait returns soon.
	// It does not block, may be called from any goroutine, and does nothing
	// when the attempt has ended, also if the Pending is another attempt's now.
	Drop(id uint64)
}

// Attempt is one attempt of one receive, as it leaves the receiver.
type Attempt struct {
	Ask
	// Plain says that the peer is not Tryst: it is sent no id.
	Plain bool
	// Elsewhere says that the wire has given the receive back with an
	// *ElsewhereError before: it takes its other way.
	Elsewhere bool
	// Peer is the incarnation of the process that is asked.
	Peer uint64
	// Left is the highest generation of a channel to the peer that this side
	// has left; 0 for none. Its requests count no more (ARCHITECTURE.md
	// section 6, rule c). Set by a wire that has channels.
	Left uint64
	// Finished rides on the request: answers that the peer may let go.
	Finished []uint64
	// Cancelled are receives that are not wanted any more, all that the peer has not
	// confirmed. It deals with them before it looks at the request.
	Cancelled []uint64
	// Args are the receiver's.
	Args rendezvous.Args
	// Began is when it was begun, and Ended when it had its outcome; that is set by a wire
	// which has looked at the clock then, else zero: so nobody looks once more.
	Began, Ended time.Time
	// Partial is what earlier attempts have brought; a wire that can go on
	// from there keeps its state in it. At most one attempt of a receive
	// is under way at any time, and the state is its own.
	Partial *Partial
}

// Partial is the part of a large tensor that has arrived. Its owner is the
// receive: when it ends without the value, Failover releases the memory, after
// the last attempt has returned.
type Partial struct {
	// Buffer is the destination; nil when nothing has arrived.
	Buffer *tensor.Buffer
	// Bytes is how much of it, from its beginning, is good.
	Bytes int64
	// State is the wire's own.
	State any
}

// Drop releases what has arrived.
func (p *Partial) Drop() {
	if p.Buffer != nil {
		p.Buffer.Release()
	}
	*p = Partial{}
}

// LostError says that a request has ended without the peer's answer: its connection was
// lost, or something between the two has ended it. The peer may have taken it or not.
type LostError struct{ Err error }

func (e *LostError) Error() string { return e.Err.Error() }

// Unwrap returns the wire's error.
func (e *LostError) Unwrap() error { return e.Err }

// ElsewhereError says that an attempt has ended without an answer because this
// way to the peer has no room for it (no registered memory is left, the key is
// longer than a message), and that the wire has another way.
type ElsewhereError struct{ Err error }

func (e *ElsewhereError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ElsewhereError) Unwrap() error { return e.Err }

// ReceiverError says that an attempt has ended because this side cannot take the value: it
// has no memory for it, or cannot read it. The receive ends with it, and the value goes back
// to the head of its key at the peer.
type ReceiverError struct{ Err error }

func (e *ReceiverError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *ReceiverError) Unwrap() error { return e.Err }

// RestartedError says that the process that answered is not the one asked.
type RestartedError struct{ Err error }

func (e *RestartedError) Error() string { return e.Err.Error() }

// Unwrap returns the peer's error.
func (e *RestartedError) Unwrap() error { return e.Err }

// UndecidedError refuses a request about which nothing was decided: it had no effect,
// and may be repeated. A wire sends it such that the requester takes its attempt for
// lost.
type UndecidedError struct{ Err error }

func (e *UndecidedError) Error() string { return e.Err.Error() }

// Unwrap returns the reason.
func (e *UndecidedError) Unwrap() error { return e.Err }

func undecided(format string, args ...any) error {
	return &UndecidedError{Err: status.Errorf(status.Unavailable, format, args...)}
}

// payloadOtherProcess marks the error of OtherProcess on its way.
const payloadOtherProcess = "type.googleapis.com/tryst.OtherProcess"

// OtherProcess is the answer of a sender to a request that was meant for its
// earlier process: what that one had is lost. A wire turns it into a
// *RestartedError at the asker (IsOtherProcess).
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
