package grpctransport

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/transport"
)

// lease holds what a response needs until gRPC has written it: the charge, and a reference
// to the tensor whose memory gRPC reads, if any. It has a reference count, since the chunks
// of a stream share one lease.
type lease struct {
	refs   atomic.Int64
	tensor *tensor.Tensor            // nil for a copy
	reads  reading                   // of tensor
	memory *transport.ResponseMemory // nil for a response without any
	charge charge
}

// newLease takes over the caller's reference to t, which may be nil, and the charge. The
// caller must call end.
func newLease(t *tensor.Tensor, c charge) *lease {
	l := &lease{tensor: t, reads: beginRead(t, c.conn), charge: c}
	l.refs.Store(1)
	return l
}

func (l *lease) retain() *lease {
	l.refs.Add(1)
	return l
}

// buffer returns a buffer over data, which is memory of the lease. A small buffer holds no
// reference to the lease, since gRPC does not report when it has written one.
func (l *lease) buffer(data []byte) mem.Buffer {
	if len(data) <= copyLimit {
		return mem.SliceBuffer(data)
	}
	return lend(data, l.retain())
}

// end drops one reference. The last one releases the tensor and the charge.
func (l *lease) end() {
	if l.refs.Add(-1) > 0 {
		return
	}
	l.reads.end()
	if l.tensor != nil {
		l.tensor.Release()
	}
	if l.memory != nil {
		l.memory.Release()
	}
	l.charge.end()
}

// reading is a read of a tensor for the client of a connection, of which the lender of the memory knows, if it was
// lent: a client that is slow, or stopped, must not keep the memory for ever. The zero value is none.
type reading struct {
	lender tensor.Lender
	over   Connection
}

// beginRead returns the read of t, which may be nil, for a connection, which may be nil, too. The caller must end it
// before it releases t.
func beginRead(t *tensor.Tensor, c *connQuota) reading {
	if t == nil || c == nil || c.of == nil {
		return reading{}
	}
	r := reading{t.Buffer().Lender(), Connection{c.of}}
	if r.lender != nil {
		r.lender.ReadBegins(r.over)
	}
	return r
}

func (r reading) end() {
	if r.lender != nil {
		r.lender.ReadEnds(r.over)
	}
}

// loan is memory that gRPC reads. gRPC treats it as the pool of the buffer, and Put ends the
// reference to the lease when gRPC has written the bytes.
//
// grpc-go drops buffers without freeing them when a connection breaks with messages in its
// queues, and when a message is queued for a stream that was just reset. Then a cleanup ends the
// reference to the lease, when the garbage collector finds that nothing refers to the loan
// (loans.go).
type loan struct {
	data    []byte
	of      lent
	dropped runtime.Cleanup
}

// lent is what a loan gives back at its end.
type lent struct {
	lease *lease
	slot  uint32 // of loans
}

// lend returns a buffer over data, which must be longer than copyLimit. It takes over the
// caller's reference to the lease.
func lend(data []byte, of *lease) mem.Buffer {
	l := &loan{data: data, of: lent{of, of.charge.loans().begin()}}
	l.dropped = runtime.AddCleanup(l, lent.drop, l.of)
	return mem.NewBuffer(&l.data, l)
}

// drop ends the loan of a buffer that gRPC has dropped.
func (l lent) drop() {
	l.lease.charge.loans().drop(l.slot)
	l.lease.end()
}

// Get implements mem.BufferPool. gRPC never calls it.
func (*loan) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool: gRPC has written the bytes.
func (l *loan) Put(*[]byte) {
	l.dropped.Stop()
	l.of.lease.charge.loans().end(l.of.slot)
	l.of.lease.end()
	runtime.KeepAlive(l) // so that the cleanup cannot run before Stop
}
