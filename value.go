package tryst

import (
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
)

// Value is the result of a receive. Its Transport, Device, Bytes, Duration and Attempts say how it came.
type Value struct {
	// Tensor is the received tensor: never nil, and an empty float tensor in a dead value. The
	// receiver owns one reference to its memory, and releases it; until then it may read the
	// tensor, and send it on. A large tensor that came over verbs is in registered memory.
	Tensor *tensor.Tensor
	// Dead marks the value of a branch that was not taken (Step.SendDead).
	Dead bool
	Arrival
}

// Arrival says how a value came to its receiver. It has these fields:
//
//	Transport the transport that carried the whole content: "verbs" or "grpc",
//	          or "local" for a value that this process sent to itself
//	Device    the RDMA device of this process that received it, such as mlx5_0; empty for other transports
//	Bytes     the size of the content
//	Duration  from the request to the value, with all attempts; it includes the time before
//	          the value was sent. 0 for local
//	Attempts  the requests that it took: 1, and one more for each connection that broke meanwhile
type Arrival = rendezvous.Arrival

// Filled is the result of a receive into the receiver's own memory (RecvInto). Beside the fields of
// Arrival it has:
//
//	ZeroCopy  the sender's device wrote the content into the memory, by RDMA. Otherwise it was
//	          copied: it came over gRPC, or within a message of verbs (up to Config.RDMA.EagerLimit),
//	          or from this process, or the memory is not of Allocator
//	Dead      the value of a branch that was not taken; the memory is as it was
type Filled = server.Filled

// Delivery says what becomes of a value that SendWait has sent. Its methods are:
//
//	Wait(ctx) error         waits for the outcome and returns it as Err; if ctx ends first, Cancelled
//	                        or DeadlineExceeded. Then the receiver may still get the value
//	Done() <-chan struct{}  closed when the value has its outcome
//	Err() error             nil before Done is closed, and when the receiver has the value;
//	                        otherwise why that is not known: the error of the step; Aborted when the
//	                        step has ended here (ErrStepEnded), or another process has taken the place of
//	                        the one that had requested the value (ErrPeerRestarted); DataLoss when the
//	                        response was dropped
//
// A Tryst peer has the value when it acknowledges it, some milliseconds after its receive has
// returned; after an error it may have it all the same. A TensorFlow peer acknowledges nothing: the
// outcome nil then says that the response was given to the connection. Done is about the receiver,
// not about the memory of the tensor: a receiver in this process shares it until it releases the
// value, and a transport may still read it. Write to it again when Buffer().Unique() reports true,
// which Buffer().WaitUnique waits for. A Delivery that is of no interest may be dropped.
//
// A consumer that is not there, was killed, or has ended the step on its side, is no error: it may come
// later, and gets the value. Config.PeerTimeout is about receives only. Wait ends with its context. To
// notice the loss of a consumer, receive something from it in the same step, such as its result, and
// cancel the context of Wait when that fails: it ends with Unavailable after PeerTimeout, or with the
// error of the consumer's Abort.
type Delivery = rendezvous.Delivery

// Link says how this process and a peer reach each other. Its fields are:
//
//	Task      the peer
//	Route     what carries tensors at present: "verbs", "grpc", or "none" while there is no verbs
//	          and Config.Fallback is "none"
//	State     LinkUp, LinkConnecting, LinkDown or LinkGone (a client that went away)
//	Since     when Route or State changed last
//	Reason    why Route is not verbs
//	Error     why the peer was not reached; empty while State is LinkUp
//	Over      the provider of the verbs channel: "shm", "tcp", or "rdma" for libibverbs and roce
//	Routes    each provider, the best one first, with the reason why it is not used
//	Device, LocalAddress, RemoteAddress, QueuePairs, Generation  of the verbs channel
//	Dialed    the address of the gRPC connection that this process made
//	Breaks    how many channels with the peer have broken or were closed
type Link = server.Link

// LinkState is the state of a Link: a string such as "up".
type LinkState = server.LinkState

// The states of a link.
const (
	// LinkUp: a channel, or a gRPC connection in one of the two directions, is up.
	LinkUp = server.LinkUp
	// LinkConnecting: a channel or a connection is being made.
	LinkConnecting = server.LinkConnecting
	// LinkDown: there is neither. The next receive, or the next attempt after a pause, makes one.
	LinkDown = server.LinkDown
	// LinkGone: a client was here and has no connection any more.
	LinkGone = server.LinkGone
)

// value converts the result of a receive.
func value(v rendezvous.Value, err error) (Value, error) {
	if err != nil {
		return Value{}, err
	}
	return Value{Tensor: v.Tensor, Dead: v.Dead, Arrival: v.Arrival()}, nil
}
