package rendezvous

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Rendezvous exchanges the tensors of one step. All methods may be called from
// any goroutine, and from a DoneFunc.
type Rendezvous interface {
	// Send adds a value to the queue of key and never blocks. It takes a
	// reference of its own to t; the caller keeps its reference. Nobody may
	// write to the memory of t until every reference is released. dead marks
	// the value of a branch that was not taken; t may then be nil, and the
	// receiver gets an empty float tensor. After an error Send holds no
	// reference.
	Send(key Key, args Args, t *tensor.Tensor, dead bool) error

	// RecvAsync receives the next value of key. It calls done exactly once,
	// possibly before it returns. The end of ctx cancels the receive unless
	// a value has been matched to it.
	RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc)

	// Recv is RecvAsync that waits. The caller releases the tensor.
	Recv(ctx context.Context, key Key, args Args) (Value, error)

	// Abort ends the step with err: all waiting receives and all later calls
	// fail with err, and values that were not received are dropped. Only the
	// first call has an effect.
	Abort(err error)
}

// Args describes one side of an exchange. The receiver gets the sender's Args
// with the tensor.
type Args struct {
	// Device is the context (a stream, a queue) of the device whose memory
	// holds the tensor, or shall hold it. It is opaque to this package. Nil
	// means host memory, whatever device the key names. A value that came from another
	// process is in host memory and has an *Arrival here. In a receive, an *Into is host
	// memory that the value is written into.
	Device any
}

// Value is what a receiver gets. It has four words, so that the compiler can
// keep it in registers; a fifth word makes a local Send and Recv slower.
type Value struct {
	// Tensor is never nil in a value that was received. The receiver owns
	// one reference and releases it.
	Tensor *tensor.Tensor
	// SendArgs are those of a sender in this process. Arrival has what a transport recorded
	// of any other. A transport that takes a value for a peer may find a record of the sender
	// in Device, for Deliver and Sent.
	SendArgs Args
	// Dead marks the value of a branch that was not taken.
	Dead bool

	seq uint32 // position in the order in which values were sent, for Restore
}

// release releases the value's tensor, if it has one.
func (v Value) release() {
	if v.Tensor != nil {
		v.Tensor.Release()
	}
}

// DoneFunc takes the outcome of a receive: either a value, whose tensor it must
// release, or an error and the zero Value. recvArgs are the Args of the
// receiver. The package comment defines the goroutine on which it runs.
type DoneFunc func(v Value, recvArgs Args, err error)

// newValue returns the value to be sent, with a new reference to t. method is for errors.
func newValue(method, key string, args Args, t *tensor.Tensor, dead bool) (Value, error) {
	switch {
	case t != nil:
		t.Retain()
	case !dead:
		return Value{}, status.Errorf(status.InvalidArgument, "%s of %s: no tensor; only a dead value may have none", method, describe(key))
	default:
		var err error
		if t, err = tensor.FromBytes(tensor.Float32, tensor.Vector(0), nil); err != nil {
			return Value{}, err
		}
	}
	return Value{Tensor: t, SendArgs: args.withoutArrival(), Dead: dead}, nil
}

// The names of the receiving methods in errors.
const (
	methodRecv  = "Recv"
	methodAsync = "RecvAsync"
)

// ended returns the error of a receive whose context has ended, nil while the
// context is live. method is what the caller called, and key the text of its key.
func ended(ctx context.Context, method, key string) error {
	switch ctx.Err() {
	case nil:
		return nil
	case context.DeadlineExceeded:
		return status.Errorf(status.DeadlineExceeded, "%s of %s: the deadline passed before a value arrived", method, describe(key)).Derived()
	default:
		return status.Errorf(status.Cancelled, "%s of %s: cancelled before a value arrived", method, describe(key)).Derived()
	}
}

// outcomes passes the outcome of one receive to a waiting goroutine.
type outcomes chan outcome

type outcome struct {
	v   Value
	err error
}

func (c outcomes) done(v Value, _ Args, err error) { c <- outcome{v, err} }

// await starts an asynchronous receive and waits for its outcome. start watches
// the context.
func await(start func(done DoneFunc)) (Value, error) {
	c := make(outcomes, 1)
	start(c.done)
	o := <-c
	return o.v, o.err
}
