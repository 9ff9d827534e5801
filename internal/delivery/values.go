package delivery

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
)

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

// Rememberer is Values that remember which steps are over.
type Rememberer interface {
	Values
	// Over reports whether a step is over for good: each receive of key there ends with the same error. Like
	// TakeLocal, it calls nobody.
	Over(step int64, key rendezvous.Key) bool
}

// Publisher is Values some of which do not go when they are received.
type Publisher interface {
	Values
	// Republishes reports whether each receive of key gets the value. It calls nobody, as
	// TakeLocal.
	Republishes(key rendezvous.Key) bool
}
