package grpctransport

import (
	"runtime"
	"sync/atomic"

	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/tensor"
)

// lease is what an answer holds while gRPC has it: a reference to the tensor whose memory it
// reads, if any, and the answer's charge. It is counted, since the chunks of a stream share one.
type lease struct {
	refs   atomic.Int64
	tensor *tensor.Tensor // nil for a copy
	charge charge
}

// newLease takes over the caller's reference to t, which may be nil, and the charge. The lease
// is the caller's to end.
func newLease(t *tensor.Tensor, c charge) *lease {
	l := &lease{tensor: t, charge: c}
	l.refs.Store(1)
	return l
}

func (l *lease) retain() *lease {
	l.refs.Add(1)
	return l
}

// buffer returns a buffer over data, which the lease is for. gRPC does not tell of small ones
// that it needs them no more.
func (l *lease) buffer(data []byte) mem.Buffer {
	if len(data) <= copyLimit {
		return mem.SliceBuffer(data)
	}
	return lend(data, l.retain())
}

// end gives up one reference; the last one gives everything back.
func (l *lease) end() {
	if l.refs.Add(-1) > 0 {
		return
	}
	if l.tensor != nil {
		l.tensor.Release()
	}
	l.charge.end()
}

// loan is memory that gRPC reads; its lease ends when gRPC has written the bytes. To gRPC it is
// the pool that the buffer returns to.
//
// grpc-go drops buffers without freeing them when a connection dies with
// messages in its queues, and when a stream is reset between the queueing of a
// message and its turn. That nothing refers to the loan any more is then the
// only sign that nobody reads the memory, so the garbage collector gives it back.
type loan struct {
	data    []byte
	lease   *lease
	dropped runtime.Cleanup
}

// lend returns a buffer over data, which is longer than copyLimit. It takes over the caller's
// reference to the lease.
func lend(data []byte, of *lease) mem.Buffer {
	l := &loan{data: data, lease: of}
	l.dropped = runtime.AddCleanup(l, (*lease).end, of)
	return mem.NewBuffer(&l.data, l)
}

// Get implements mem.BufferPool; nothing takes memory from a loan.
func (*loan) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool: gRPC has written the bytes.
func (l *loan) Put(*[]byte) {
	l.dropped.Stop()
	l.lease.end()
	runtime.KeepAlive(l) // else the collector may come between the two
}
