package rendezvous

import (
	"context"
	"errors"

	"github.com/tryst-rdma/tryst/status"
)

// Delivery tells what becomes of a value that SendWait has sent. It has exactly one
// outcome, whether or not anybody asks for it.
//
// A receiver in this process has the value when it is matched to the receive. A Tryst peer
// has it when it acknowledges the value, over gRPC and over verbs; that is some
// milliseconds after its receive has returned. A peer that is not Tryst, such as
// TensorFlow, acknowledges nothing: there the outcome nil says only that the response was
// given to the connection. A value that was matched to a receive which was then cancelled
// goes back to its queue and has no outcome yet. A value that nobody requests has none until
// its step ends: a receiver that is absent is no error.
//
// An outcome says nothing about the memory of the tensor. A receiver in this process shares
// it until it releases the value, and a transport may still read it, above all after an
// error and for a peer that is not Tryst. It may be written when tensor.Buffer.Unique
// reports true.
type Delivery struct {
	charge *charge // until the outcome
	cost   int64
	key    string        // for errors
	device any           // the sender's Args.Device
	done   chan struct{} // closed at the outcome; nil when nobody can ask
	err    error         // set before done is closed
}

// Done returns a channel that is closed when the value has its outcome.
func (d *Delivery) Done() <-chan struct{} { return d.done }

// Wait waits for the outcome and returns it, as Err does. If ctx ends first it returns Cancelled
// or DeadlineExceeded, and wraps the cause of ctx. That does not change the outcome: the
// receiver may still get the value, and Wait may be called again.
func (d *Delivery) Wait(ctx context.Context) error {
	select {
	case <-d.done:
		return d.err
	default:
	}
	select {
	case <-d.done:
		return d.err
	case <-ctx.Done():
		return d.notDelivered(ctx)
	}
}

// notDelivered is the error of a Wait whose context has ended.
func (d *Delivery) notDelivered(ctx context.Context) error {
	code, what := status.Cancelled, "cancelled"
	if ctx.Err() == context.DeadlineExceeded {
		code, what = status.DeadlineExceeded, "the deadline passed"
	}
	if cause := context.Cause(ctx); !errors.Is(ctx.Err(), cause) {
		return status.Errorf(code, "delivery of %s: %s before the receiver had the value, which it may still get: %w", describe(d.key), what, cause).Derived()
	}
	return status.Errorf(code, "delivery of %s: %s before the receiver had the value, which it may still get", describe(d.key), what).Derived()
}

// Err returns nil before Done is closed, and when the receiver has the value. Otherwise it
// says why that is not known: the error of the step, Aborted when the step has ended here or
// another process has taken the place of the one that had requested the value, DataLoss when
// the response was dropped. The receiver may have got the value all the same, if only its
// acknowledgement was lost.
func (d *Delivery) Err() error {
	select {
	case <-d.done:
		return d.err
	default:
		return nil
	}
}

// The Args.Device of a value that is counted is its record: a *charge, or a *Delivery if
// there is more to know than what it is charged to. So a Value keeps its four words. No
// receiver sees the record.

// arrived returns a value that a receiver in this process gets: its sender learns that,
// and its record is removed.
func (v Value) arrived() Value {
	if v.SendArgs.Device != nil {
		v.SendArgs.Device = v.ended(nil)
	}
	return v
}

// drop releases a value that nobody gets, and reports err to its sender.
func (v Value) drop(err error) {
	if v.SendArgs.Device == nil {
		v.Tensor.Release()
		return
	}
	v.Deliver(err, func(release func()) { release() })
}

// Deliver ends a value that was taken for a peer: it releases the caller's reference to
// the tensor, and then reports the outcome to the sender, nil when the peer has the value.
// run is as for tensor.Tensor.ReleaseBy. A transport calls Deliver or Manager.Restore, once,
// for each value that it has from TakeLocal, RecvLocalAsync or RecvLocal.
func (v Value) Deliver(err error, run func(func())) {
	if v.SendArgs.Device == nil {
		v.Tensor.ReleaseBy(run)
		return
	}
	cost := cost(v) // while there is a reference
	reclaims := false
	v.Tensor.ReleaseBy(func(reclaim func()) {
		reclaims = true
		run(func() {
			reclaim()
			v.end(cost, err)
		})
	})
	if !reclaims {
		v.end(cost, err)
	}
}

// Sent is Deliver for a transport that goes on using its reference to the tensor.
func (v Value) Sent(err error) { v.ended(err) }

// ended reports the outcome of a value, if it is counted. It returns the sender's
// Args.Device.
func (v Value) ended(err error) (device any) { return v.end(cost(v), err) }

func (v Value) end(cost int64, err error) (device any) {
	switch r := v.SendArgs.Device.(type) {
	case *charge:
		r.leave(cost)
		return nil
	case *Delivery:
		r.charge.leave(r.cost)
		if r.done != nil {
			r.err = err
			close(r.done)
		}
		return r.device
	default:
		return r
	}
}

// cost is what a value counts: its memory, or recordCost if that is more.
func cost(v Value) int64 { return max(v.Tensor.MemorySize(), recordCost) }

// counted reports whether a value has its record.
func counted(device any) bool {
	switch device.(type) {
	case *charge, *Delivery:
		return true
	}
	return false
}
