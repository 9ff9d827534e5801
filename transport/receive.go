package transport

import (
	"time"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Receive is one receive as a connection gets it. The requester owns it. A connection reads
// it while an attempt is under way; at most one is at any time.
type Receive struct {
	// Request is what the peer receives: the present attempt.
	Request
	// Plain reports that the peer is not Tryst: it gets no id.
	Plain bool
	// Fallback reports that an earlier attempt ended with a *FallbackError: this one
	// takes the other route.
	Fallback bool
	// Peer is the incarnation of the process that gets the request.
	Peer uint64
	// Left is the highest generation of a channel to the peer that this side has left;
	// 0 for none. A connection that has channels sets it. The peer does not respond to
	// requests of that channel any more (ARCHITECTURE.md section 6, rule c).
	Left uint64
	// Acks are ids to acknowledge with the request.
	Acks []uint64
	// Cancels are all cancelled receives that the peer has not confirmed. It cancels
	// them before it looks at the request.
	Cancels []uint64
	// Args are the receiver's.
	Args rendezvous.Args
	// Into is the receiver's own memory, from its Args; nil for none. The requester holds a
	// reference to it (Into.Claim) until it has ended and no attempt of it is under way. A
	// connection whose peer may write later than that, such as a device by RDMA, holds one
	// of its own. At most one attempt is under way, so no two write at once.
	Into *rendezvous.Into
	// Began is when the attempt began. Ended is when it had its outcome, if the
	// connection has looked at the clock then; else zero.
	Began, Ended time.Time
	// Partial is what the attempts so far have brought. The connection of the attempt
	// that is under way may change it.
	Partial Partial
	// Arrival is the record that the receiver of the value gets. The attempt that brings the
	// value sets Transport and Device in its Wait, and the requester the rest.
	Arrival rendezvous.Arrival
}

// CheckInto returns a *ReceiverError with InvalidArgument if a value of this type and shape
// does not fit into Into. A connection calls it before it writes there.
func (r *Receive) CheckInto(dtype tensor.DType, shape tensor.Shape) error {
	if r.Into == nil {
		return nil
	}
	if err := r.Into.Check(dtype, shape); err != nil {
		return &ReceiverError{Err: status.From(err).WithPrefix("receive of " + r.Key.Describe())}
	}
	return nil
}

// Deliver returns what the receiver gets for x, a received tensor: x, or its content in
// Into. It takes over the reference to x. The error is that of CheckInto.
func (r *Receive) Deliver(x *tensor.Tensor, dead bool) (*tensor.Tensor, error) {
	if r.Into == nil || dead || x == r.Into.Tensor() {
		return x, nil
	}
	if err := r.CheckInto(x.DType(), x.Shape()); err != nil {
		x.Release()
		return nil, err
	}
	return r.Into.Copy(x), nil
}

// Partial is the part of a large tensor that has arrived. The receive owns it, and
// releases the memory when it ends without the value, after its last attempt.
type Partial struct {
	// Buffer is the destination; nil when nothing has arrived.
	Buffer *tensor.Buffer
	// Bytes is how much of it, from its beginning, is valid.
	Bytes int64
	// State belongs to the connection.
	State any
}

// Drop releases what has arrived. It may call the owner of the memory.
func (p *Partial) Drop() { p.DropBy(func(reclaim func()) { reclaim() }) }

// DropBy is Drop for a caller with locks. run is as in tensor.Buffer.ReleaseBy.
func (p *Partial) DropBy(run func(func())) {
	if p.Buffer != nil {
		p.Buffer.ReleaseBy(run)
	}
	*p = Partial{}
}
