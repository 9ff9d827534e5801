package transport

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// ResponseCache is the responder's side of ARCHITECTURE.md section 6: it takes the values
// that requesters ask for from the rendezvous, and keeps each response until the requester
// acknowledges it. One serves all connections of a process, over all its transports. It is
// safe for concurrent use. Package server makes it.
type ResponseCache interface {
	// Introduce makes a process known that will send requests, from an address: the
	// process is accepted under its name, or refused. When another process is connected under
	// the name, Introduce calls the address of the name, and returns when ctx ends at the
	// latest. Its error has no effect; it is an *UndecidedError when it leaves open which
	// process has the name.
	Introduce(ctx context.Context, p Process, from string) error

	// Connected reports that a connection to the requester lives, until the returned function
	// is called, once. While one lives its responses are not dropped.
	Connected(p Process) (closed func())

	// Holds reports whether anything is kept for a requester, or waited for by it: a reason to
	// find out whether it is still there.
	Holds(p Process) bool

	// Request asks for a value. to.Reply is called once with the response, perhaps before
	// Request returns, unless the call is detached before.
	Request(to Replier, r Request)

	// RequestNow is Request for a connection that must not be held up: it waits for nothing,
	// and calls nobody but TakeLocal of the rendezvous, so it may be called with locks held that
	// Reply takes. When the response is there at once, it returns it and true, and Reply is
	// not called. The caller calls rest, unless it is nil, when it holds no such lock.
	RequestNow(to Replier, r Request) (resp Response, ok bool, rest func())

	// Detach ends a call without its response, if it has not been replied to: its connection
	// was lost. Reply is not called any more, unless it runs already. This is no cancel: a
	// value that was matched to the receive stays with it for the next attempt.
	Detach(to Replier, p Process, id uint64, attempt uint32)

	// Value returns the response that is kept for an attempt of a receive, for content that is
	// fetched in chunks; the caller releases its tensor. Aborted when nothing is kept for
	// it or a newer attempt has come, DataLoss when it was dropped.
	Value(p Process, id uint64, attempt uint32) (rendezvous.Value, error)

	// Ack releases the responses to ids: the requester has them. It does nothing for a
	// requester that is not known.
	Ack(p Process, ids []uint64)

	// Cancel ends the receives ids as if they had never been requested: what was matched to
	// them goes back to its place under its key. It returns when that has happened, so that
	// later requests get values in order. It must not be called from a Reply. After an error
	// nothing is cancelled. A requester that Request would refuse gets the same error, and one without an
	// incarnation FailedPrecondition. ResourceExhausted says that there is no space to remember so many ids.
	Cancel(p Process, ids []uint64) error

	// BeginCancel is the part of Cancel that calls nobody, for a connection that must not be
	// held up. The function that it returns does the rest, and has to be called, also after an error. Until then, new
	// requests of that requester match no value.
	BeginCancel(p Process, ids []uint64) (end func(), err error)

	// Fail replaces the value that is kept for an attempt by err: the transport cannot send the
	// value. The sender of the value learns it. A transport calls Fail before it answers with err,
	// since an acknowledgement of err would otherwise confirm the value. It does nothing when the
	// value is not kept any more, or a newer attempt has come.
	Fail(p Process, id uint64, attempt uint32, err error)

	// EndStep releases what is kept of a step. Call it after the rendezvous of the step was
	// cleaned up, which ends the receives that wait in it.
	EndStep(step int64)
}

// CacheStats is a snapshot of a cache.
type CacheStats struct {
	Requesters int   // processes that send requests or did lately
	Connected  int   // those of them with a connection
	Waiting    int   // receives without a response
	Kept       int   // responses kept, and values that are just being given back
	Bytes      int64 // size of the tensors of what is kept
}
