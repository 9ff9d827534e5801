package delivery

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// Process identifies a process. The zero Process is a peer that is not Tryst: it has no
// ids of its own, cannot cancel, and its responses are not kept.
type Process struct {
	// Name is its task name.
	Name string
	// Incarnation is the random number that it chose at its start.
	Incarnation uint64
}

// Request is one attempt of one receive, as the responder gets it over any connection.
type Request struct {
	Requester Process
	// ID names the receive among those of its requester. It is random, and the same in
	// each attempt.
	ID uint64
	// Attempt counts the attempts of the receive, from 1. Only the newest gets a response.
	Attempt uint32
	// Step is the rendezvous to look in, and Key the value to take.
	Step int64
	Key  rendezvous.Key
	// Guard, if it is not nil, decides when the step runs whether the requester may have the value.
	Guard rendezvous.Guard
}

// Response is what a Request ends with: a value or an error.
type Response struct {
	// Value is what was sent. Whoever gets the response releases its tensor.
	Value rendezvous.Value
	// Err is why there is no value.
	Err error
}

// Values is where the responder takes values from; *rendezvous.Manager is one.
type Values interface {
	// RecvLocalAsync takes the next value of key in the step. The end of ctx takes the
	// receive back; done runs exactly once in any case.
	RecvLocalAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc)
	// TakeLocal takes the next value of key in the step if it is there, and otherwise
	// returns false and changes nothing. It calls nobody, so it may be called with locks
	// held.
	TakeLocal(step int64, key rendezvous.Key) (rendezvous.Value, bool)
	// Restore puts a value back to the head of its key. It returns false, and the
	// reference stays the caller's, when there is nothing to put it back to: the step has
	// ended, or the key is of a publication.
	Restore(step int64, key rendezvous.Key, v rendezvous.Value) bool
}

// Publisher is a Source of which some values do not go when they are received.
type Publisher interface {
	Values
	// Republishes reports whether each receive of key gets the value. It calls nobody, as
	// TakeLocal.
	Republishes(key rendezvous.Key) bool
}

// Replier brings responses to requesters: a connection, or a call of one. Its type is
// comparable.
type Replier interface {
	// Reply has the response to an attempt of a receive, with a reference of its own to
	// the value's tensor. It is called outside every lock, and must not block.
	Reply(id uint64, attempt uint32, r Response)
}
