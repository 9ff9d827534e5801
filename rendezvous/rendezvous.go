package rendezvous

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Rendezvous is where the tensors of one step meet. All methods may be called
// from any goroutine, and from a DoneFunc.
type Rendezvous interface {
	// Send puts a value under key and never blocks. It takes a reference of
	// its own to t: the caller keeps the one it has, and from now on nobody
	// writes to the memory until every reference is gone. dead marks the
	// value of a branch that was not taken; t may then be nil, and the
	// receiver gets an empty float tensor. On an error nothing is kept.
	Send(key Key, args Args, t *tensor.Tensor, dead bool) error

	// RecvAsync asks for the next value under key and calls done exactly
	// once, perhaps before it returns. ctx ending cancels the receive while
	// no value is matched to it.
	RecvAsync(ctx context.Context, key Key, args Args, done DoneFunc)

	// Recv is RecvAsync that waits. The caller releases the tensor.
	Recv(ctx context.Context, key Key, args Args) (Value, error)

	// Abort ends the step with err: what waits and all later calls fail
	// with it, and values that nobody took are dropped. The first error
	// stays; later calls of Abort do nothing.
	Abort(err error)
}

// Args is what one side says about itself. The sender's args reach the
// receiver beside the tensor.
type Args struct {
	// Device is the context of the device in whose memory the tensor is, or
	// shall be (a stream, a queue); opaque to this package. Nil says host
	// memory, whatever device the key names.
	Device any
}

// Value is what a receiver gets. It has four words, the most that the compiler
// keeps in registers; with a fifth a local Send and Recv took half as long again.
type Value struct {
	// Tensor is never nil in a value that was received. The receiver owns
	// one reference and releases it.
	Tensor   *tensor.Tensor
	SendArgs Args
	// Dead marks the value of a branch that was not taken.
	Dead bool

	at uint32 // its place among the values of its key, for Restore
}

// release gives up the value's reference, if there is one.
func (v Value) release() {
	if v.Tensor != nil {
		v.Tensor.Release()
	}
}

// DoneFunc takes the outcome of a receive: the value, whose tensor it must
// release, and the args that the receiver gave; or an error, and then the
// value is zero. The package comment tells on which goroutine it runs.
type DoneFunc func(v Value, recvArgs Args, err error)

// newValue checks and holds what is sent: a reference of its own to the tensor.
func newValue(key string, args Args, t *tensor.Tensor, dead bool) (Value, error) {
	switch {
	case t != nil:
		t.Retain()
	case !dead:
		return Value{}, status.Errorf(status.InvalidArgument, "Send of %s: no tensor; only a dead value may be without", key)
	default:
		var err error
		if t, err = tensor.FromBytes(tensor.Float32, tensor.Vector(0), nil); err != nil {
			return Value{}, err
		}
	}
	return Value{Tensor: t, SendArgs: args, Dead: dead}, nil
}

// ended returns the error of a receive whose context has ended, or nil while
// it lives. method is the name that TensorFlow's text has.
func ended(ctx context.Context, method, key string) error {
	switch ctx.Err() {
	case nil:
		return nil
	case context.DeadlineExceeded:
		return status.Errorf(status.DeadlineExceeded, "%s of %s: the deadline passed before a value came", method, key).Derived()
	default:
		return status.New(status.Cancelled, method+" is cancelled.").Derived()
	}
}

// outcomes takes what one receive ends with, for a goroutine that waits.
type outcomes chan outcome

type outcome struct {
	v   Value
	err error
}

func (c outcomes) done(v Value, _ Args, err error) { c <- outcome{v, err} }

// await turns a RecvAsync into a Recv. The context is start's affair.
func await(start func(done DoneFunc)) (Value, error) {
	c := make(outcomes, 1)
	start(c.done)
	o := <-c
	return o.v, o.err
}
