package transport

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
)

// Asker identifies the process that asks. The zero Asker is a peer that is not
// Tryst: it has no ids of its own, cannot say CANCEL, and its answers are not
// kept.
type Asker struct {
	// Name is the asker's task name.
	Name string
	// Incarnation is the random number that its process chose at its start.
	Incarnation uint64
}

// Ask is one attempt of one receive, as it arrives at the sender over any
// wire.
type Ask struct {
	Asker Asker
	// ID names the receive among those of its asker. Random, the same in
	// each attempt.
	ID uint64
	// Attempt counts the times that the receive was asked, from 1. Only the
	// newest attempt is answered.
	Attempt uint32
	// Step is the rendezvous to look in, and Key the value to take.
	Step int64
	Key  rendezvous.Key
}

// Answer is what an Ask ends with: a value or an error.
type Answer struct {
	// Value is what was sent. Who gets the answer releases its tensor.
	Value rendezvous.Value
	// Err is why there is no value.
	Err error
}

// Source is where the sender's side takes values from; *rendezvous.Manager
// is one.
type Source interface {
	// RecvLocalAsync takes the next value of key in the step. The end of
	// ctx takes the receive back; done runs exactly once in any case.
	RecvLocalAsync(ctx context.Context, step int64, key rendezvous.Key, done rendezvous.DoneFunc)
	// Restore puts a value back to the head of its key. It returns false,
	// and the reference stays the caller's, when there is nothing to put
	// back to: the step has ended, or the key is answered without a table.
	Restore(step int64, key rendezvous.Key, v rendezvous.Value) bool
}
