package rendezvous

import (
	"context"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Into is memory of the receiver's own that one receive writes a value into. It is the
// Device of the Args of that receive:
//
//	into, err := rendezvous.NewInto(dst)
//	v, err := r.Recv(ctx, key, into.Args())
//
// BaseRemote and IntraProcess take it; a Local by itself does not look at Args.
//
// The value has to have the type and shape of dst. With any other value the receive ends
// with InvalidArgument, which names both, and the value stays at the sender, or goes back
// to the head of its key. (A sender that is not Tryst takes no value back.) A dead value
// leaves dst as it was. The tensor of a received value is over the memory of dst, with a
// reference of its own.
//
// A transport holds a reference to the memory from the beginning of the receive until
// nothing can write to it any more. A receive that succeeds has released it when it ends.
// After an error the content of dst is undefined, and a peer may still write to it: do not
// read it, write to it or send it before tensor.Buffer.Unique reports true. Releasing it is
// safe at any time. The rule is kept here too: a receive into memory with another reference
// ends with FailedPrecondition, before it requests anything. A part of a tensor (Index, Slice)
// has references of its own, so the caller makes sure that the whole is not being sent.
type Into struct {
	tensor   *tensor.Tensor
	zeroCopy atomic.Bool
}

// NewInto returns dst as the destination of a receive. The caller keeps its reference to
// dst at least until the receive has ended. A dst whose elements are not plain memory, such
// as strings, is InvalidArgument: they have no memory to write to.
func NewInto(dst *tensor.Tensor) (*Into, error) {
	if !dst.DType().Plain() {
		return nil, status.Errorf(status.InvalidArgument,
			"the elements of a %v are not plain memory, so none can be received into it; receive it without a destination", dst)
	}
	return &Into{tensor: dst}, nil
}

// Args returns the Args of a receive into the memory.
func (i *Into) Args() Args { return Args{Device: i} }

// IntoOf returns the destination that the Args of a receive have; nil for none.
func IntoOf(a Args) *Into {
	i, _ := a.Device.(*Into)
	return i
}

// Tensor returns the destination. It adds no reference.
func (i *Into) Tensor() *tensor.Tensor { return i.tensor }

// ZeroCopy reports, after a receive that succeeded, whether the peer's device wrote the
// content into the memory by RDMA. Otherwise it was copied, once in general: from a gRPC
// message, from a message of verbs (small values), from registered memory that is not the
// receiver's own, or from the tensor of a sender in this process.
func (i *Into) ZeroCopy() bool { return i.zeroCopy.Load() }

// WrittenByDevice makes ZeroCopy true. A transport calls it before it ends the receive.
func (i *Into) WrittenByDevice() { i.zeroCopy.Store(true) }

// Claim begins a receive: it takes the reference that End releases. It returns
// FailedPrecondition when the memory has other references than the caller's.
func (i *Into) Claim() error {
	if !i.tensor.Buffer().RetainUnique() {
		return status.Errorf(status.FailedPrecondition,
			"the memory of the %v to receive into has other references: it was sent, or an earlier receive into it may still be written; wait until Buffer().Unique() reports true", i.tensor)
	}
	i.zeroCopy.Store(false)
	return nil
}

// End releases the reference of Claim: nothing writes to the memory for this receive any
// more. run is as in tensor.Buffer.ReleaseBy.
func (i *Into) End(run func(func())) { i.tensor.ReleaseBy(run) }

// Check returns InvalidArgument for a value that does not fit.
func (i *Into) Check(dtype tensor.DType, shape tensor.Shape) error {
	if i.Fits(dtype, shape) {
		return nil
	}
	return status.Errorf(status.InvalidArgument, "the value is a %v%v, and the memory to receive into is a %v; receive it into memory of its type and shape (a Tryst sender keeps it for the next receive)", dtype, shape, i.tensor)
}

// Fits reports whether a value of this type and shape can be received.
func (i *Into) Fits(dtype tensor.DType, shape tensor.Shape) bool {
	return dtype == i.tensor.DType() && shape.Equal(i.tensor.Shape())
}

// Copy copies the content of t, which has passed Check, and takes over the caller's
// reference. It returns the tensor to receive, with a reference for the receiver.
func (i *Into) Copy(t *tensor.Tensor) *tensor.Tensor {
	copy(i.tensor.Bytes(), t.Bytes())
	t.Release()
	return i.tensor.Retain()
}

// fill ends a receive whose value was sent in this process. A value that does not fit is
// put back by restore.
func (i *Into) fill(method string, key Key, v Value, restore func(Key, Value) bool) (Value, error) {
	defer i.End(inline)
	if v.Dead {
		return v.arrived(), nil
	}
	if err := i.Check(v.Tensor.DType(), v.Tensor.Shape()); err != nil {
		if !restore(key, v) {
			v.drop(status.Errorf(status.Aborted, "%s was not received: it did not fit the memory of the receive, and the step has ended", key.Describe()).WithKind(status.ErrStepEnded))
		}
		return Value{}, status.From(err).WithPrefix(method + " of " + key.Describe())
	}
	v.Tensor = i.Copy(v.Tensor)
	return v.arrived(), nil
}

func inline(f func()) { f() }

// filled returns the DoneFunc of a local receive that has claimed i. It copies the value into the
// memory, and then calls done, both in a function that it passes to run. BaseRemote runs that
// function on another goroutine, so that the sender does not wait for the copy. IntraProcess runs it
// on the goroutine of the sender. There a value that does not fit a receive is passed to the next
// waiting receive within the same call, so each such receive makes the stack deeper.
func (i *Into) filled(key Key, restore func(Key, Value) bool, run func(func()), done DoneFunc) DoneFunc {
	return func(v Value, args Args, err error) {
		if err != nil {
			i.End(inline)
			done(v, args, err)
			return
		}
		run(func() {
			v, err := i.fill(methodAsync, key, v, restore)
			done(v, args, err)
		})
	}
}

// claimLocal is Claim for a receive of a value that is sent in this process.
func (i *Into) claimLocal(method string, key *Key) error {
	if !fromCPU(key) || key.dst.Type != "CPU" {
		return status.Errorf(status.Unimplemented, "%s of %s: only host memory can be received into, from host memory", method, key.Describe())
	}
	if err := i.Claim(); err != nil {
		return status.From(err).WithPrefix(method + " of " + key.Describe())
	}
	return nil
}

// recvIntoAsync is recvAsync into memory of the receiver.
func (l *Local) recvIntoAsync(ctx context.Context, key Key, i *Into, run func(func()), done DoneFunc) {
	if err := i.claimLocal(methodAsync, &key); err != nil {
		done(Value{}, i.Args(), err)
		return
	}
	l.recvAsync(ctx, key.text, i.Args(), i.filled(key, l.Restore, run, done), true)
}

// recvInto is recv into memory of the receiver.
func (l *Local) recvInto(ctx context.Context, key Key, i *Into) (Value, error) {
	if err := i.claimLocal(methodRecv, &key); err != nil {
		return Value{}, err
	}
	v, err := l.recv(ctx, key.text, i.Args(), true)
	if err != nil {
		i.End(inline)
		return v, err
	}
	return i.fill(methodRecv, key, v, l.Restore)
}
