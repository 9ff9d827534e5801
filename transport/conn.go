package transport

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/rendezvous"
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

	// Begin begins an attempt of t and does not block. The connection may read t
	// until Wait of the attempt has returned.
	Begin(t *Receive) Attempt

	// Ack acknowledges the responses to ids: the peer may release them. Its error and
	// that of Cancel are a *LostError when the peer has not answered. Both return when
	// the peer has confirmed the batch, when the connection has ended, or with ctx.
	Ack(ctx context.Context, ids []uint64) error

	// Cancel cancels receives at the peer.
	Cancel(ctx context.Context, ids []uint64) error
}

// Attempt is one attempt of a receive at its connection.
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

// Unreached is a peer that receives were to come from, and that is not reached.
type Unreached struct {
	Task cluster.Task
	// Seeking is set while the peer is looked for.
	Seeking bool
	// Err is the last reason; nil if nothing has failed.
	Err error
}

// Waiting is a receive from a peer that has not ended.
type Waiting struct {
	Task     cluster.Task // the peer
	Step     int64
	Key      rendezvous.Key
	Since    time.Time
	Requests int  // how often it was requested
	Sent     bool // a request is under way: the peer has it, or it is on its way there
	// Why is why the peer is not reached, the last reason; nil while it is, and before the first failure.
	Why error
}
