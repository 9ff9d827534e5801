package transport

import "github.com/tryst-rdma/tryst/rendezvous"

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

// Replier brings responses to requesters: a connection, or a call of one. Its type is
// comparable.
type Replier interface {
	// Reply has the response to an attempt of a receive, with a reference of its own to
	// the value's tensor. It is called outside every lock, and must not block.
	Reply(id uint64, attempt uint32, r Response)
}
