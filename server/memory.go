package server

import (
	"context"

	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// Tensors without copies, and whose memory they are in:
//
//	Allocator       received into without a copy (RecvInto, PullRequest.Into), and sent without one
//	SendAllocator   sent without a copy; no peer has the right to write there
//	any other       sent, and received into, with one copy; over gRPC there is no difference
//
// Recv needs none of them: the tensor of a large value that comes over verbs is in registered
// memory already, and may be sent on from there.

// Allocator returns an allocator of memory that tensors are received into, and sent from,
// without a copy: over verbs registered memory, over gRPC the memory of the process
// (Options.Allocator). It stays valid when the device goes and comes back. While there is none,
// it gives memory of the process, which is copied once also when the device is back. Registered
// memory stays readable without a device, and is registered with the next one. Devices with
// memory windows (roce, tcp, shared memory) and those without (libibverbs) receive into memory
// apart: what was allocated for one of these groups is copied once over a device of the other. It gives
// memory of the group that reaches most peers at present, before any is reached that of libibverbs.
//
// Allocate returns ResourceExhausted beyond the setting arena-limit, which this memory shares
// with what is received without a destination. To register more may take milliseconds, so
// allocate before the loop, and receive into the same tensors again. tensor.Buffer.Slice divides a
// large buffer into blocks, each of which is received into and sent by itself.
//
// Over libibverbs a peer that a transfer is under way with may write to any memory of this
// allocator (docs/security.md). Over roce it has a right to its own destination only.
//
// With the transport auto and the fallback grpc there is other memory when the registered one is exhausted.
func (n *node) Allocator() tensor.Allocator {
	if n.rdma == nil || n.rdma.Optional {
		return n.receiveAllocator()
	}
	return n.rdma.Transport.ReceiveAllocator()
}

// SendAllocator is Allocator for tensors that are only sent or published: registered memory to
// which no peer has a right.
func (n *node) SendAllocator() tensor.Allocator {
	if n.rdma == nil || n.rdma.Optional {
		return sendMemory{n}.first()
	}
	return n.rdma.Transport.Allocator()
}

// Registered reports whether a tensor lies in memory that is registered with a device in use,
// over which verbs sends it without a copy. It is false without verbs.
func (n *node) Registered(t *tensor.Tensor) bool {
	return n.rdma != nil && n.rdma.Transport.Registered(t)
}

// Filled tells how a value came into memory of the receiver's own.
type Filled struct {
	// Dead marks the value of a branch that was not taken. The memory is as it was.
	Dead bool
	// ZeroCopy reports that the sender's device wrote the content into the memory by RDMA.
	// Otherwise it was copied, in general once: it came over gRPC, or in a message of verbs
	// (it is not larger than the setting eager-limit), or the sender is this process, or the
	// memory is not of Allocator.
	ZeroCopy bool
	// Arrival has the transport and the device, and how long it took.
	rendezvous.Arrival
}

// RecvInto is Recv into the caller's own tensor. The value must have the type and shape of dst;
// any other value ends the receive with InvalidArgument, which names both, and is not consumed:
// the next Recv gets it. (The value of a sender that is not Tryst is lost.) A dead value is
// told, and leaves dst as it was. A dst of strings is InvalidArgument; one without elements
// receives an empty value.
//
// The caller keeps its reference to dst, which must be the only one: memory that was sent, or
// that another receive writes into, is FailedPrecondition. When RecvInto has succeeded, the
// caller's reference is the only one again, and dst may be read, sent, or received into.
//
// After an error the content of dst is undefined, and a peer may still write to it, for example
// after ctx has ended: the transport holds a reference until that is over, within some 10
// seconds. Until dst.Buffer().Unique() reports true nobody may read, write or send it; a
// RecvInto before that is FailedPrecondition. It may be released at any time.
//
// Memory of Allocator is written by the sender's device, without a copy; the first request has
// its address, so a large value takes one round trip. A connection that breaks loses nothing:
// the next attempt fills the same memory, over verbs or gRPC, and no two attempts at once.
func (s *Server) RecvInto(ctx context.Context, step int64, from, name string, dst *tensor.Tensor) (Filled, error) {
	e := Edge{s: s, name: name}
	if err := e.setSource("RecvInto", from); err != nil {
		return Filled{}, err
	}
	return e.RecvInto(ctx, step, dst)
}

// RecvIntoAsync is RecvInto without waiting. done runs as that of RecvAsync.
func (s *Server) RecvIntoAsync(ctx context.Context, step int64, from, name string, dst *tensor.Tensor, done func(Filled, error)) {
	e := &Edge{s: s, name: name}
	if err := e.setSource("RecvIntoAsync", from); err != nil {
		s.callbacks.run(func() { done(Filled{}, err) })
		return
	}
	e.RecvIntoAsync(ctx, step, dst, done)
}

// RecvInto is Server.RecvInto from the peer.
func (e *Edge) RecvInto(ctx context.Context, step int64, dst *tensor.Tensor) (Filled, error) {
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		return Filled{}, err
	}
	v, err := e.recv(ctx, step, into.Args())
	return filled(into, v, err)
}

// RecvIntoAsync is Server.RecvIntoAsync from the peer.
func (e *Edge) RecvIntoAsync(ctx context.Context, step int64, dst *tensor.Tensor, done func(Filled, error)) {
	into, err := rendezvous.NewInto(dst)
	if err != nil {
		e.s.callbacks.run(func() { done(Filled{}, err) })
		return
	}
	e.recvElsewhere(ctx, step, into.Args(), func(v rendezvous.Value, err error) { done(filled(into, v, err)) })
}

// filled returns the result of a receive into memory. It releases the value.
func filled(into *rendezvous.Into, v rendezvous.Value, err error) (Filled, error) {
	if err != nil {
		return Filled{}, err
	}
	f := Filled{Dead: v.Dead, ZeroCopy: into.ZeroCopy(), Arrival: v.Arrival()}
	v.Tensor.Release()
	return f, nil
}
