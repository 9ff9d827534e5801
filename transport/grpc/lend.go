package grpctransport

import (
	"runtime"

	"google.golang.org/grpc/mem"

	"github.com/tryst-rdma/tryst/tensor"
)

// loan is memory of a tensor that gRPC reads: a reference to the tensor, given
// back when gRPC has written the bytes. To gRPC it is the pool that the buffer
// returns to.
//
// grpc-go drops buffers without freeing them when a connection dies with
// messages in its queues, and when a stream is reset between the queueing of a
// message and its turn. That nothing refers to the loan any more is then the
// only sign that nobody reads the memory, so the garbage collector gives it back.
type loan struct {
	data    []byte
	tensor  *tensor.Tensor
	dropped runtime.Cleanup
}

// lend returns a buffer over data, which is memory of t and longer than
// copyLimit. It takes over the caller's reference to t.
func lend(t *tensor.Tensor, data []byte) mem.Buffer {
	l := &loan{data: data, tensor: t}
	l.dropped = runtime.AddCleanup(l, (*tensor.Tensor).Release, t)
	return mem.NewBuffer(&l.data, l)
}

// Get implements mem.BufferPool; nothing takes memory from a loan.
func (*loan) Get(n int) *[]byte { b := make([]byte, n); return &b }

// Put implements mem.BufferPool: gRPC has written the bytes.
func (l *loan) Put(*[]byte) {
	l.dropped.Stop()
	l.tensor.Release()
	runtime.KeepAlive(l) // else the collector may come between the two
}
