package tensor

import (
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
)

// Buffer is a block of memory with a count of references. Who holds a
// reference may read the memory; nobody writes to it while more than one
// exists (Unique tells). The last Release gives the memory back to where it
// came from.
//
// A method call on a released Buffer panics: it is a mistake of the program
// that would otherwise read or free memory of somebody else. A slice taken
// from it earlier cannot be guarded; do not keep it beyond the reference.
type Buffer struct {
	data    []byte
	refs    atomic.Int64
	release func(*Buffer) // called once, with the last reference gone; may be nil
}

// NewBuffer returns a buffer over data with one reference, the caller's.
// release, if not nil, is called once when the last reference is gone, on the
// goroutine that released it; until then data belongs to the buffer.
func NewBuffer(data []byte, release func()) *Buffer {
	b := &Buffer{data: data}
	if release != nil {
		b.release = func(*Buffer) { release() }
	}
	b.refs.Store(1)
	return b
}

// Bytes returns the memory, valid while the caller holds a reference.
func (b *Buffer) Bytes() []byte {
	b.check("Bytes")
	return b.data
}

// Len returns the number of bytes.
func (b *Buffer) Len() int {
	b.check("Len")
	return len(b.data)
}

// Retain adds a reference and returns b.
func (b *Buffer) Retain() *Buffer {
	if b.refs.Add(1) <= 1 {
		panic("tensor: Retain of a released Buffer")
	}
	return b
}

// Release gives up one reference.
func (b *Buffer) Release() {
	switch n := b.refs.Add(-1); {
	case n > 0:
	case n < 0:
		panic("tensor: Release of a released Buffer")
	case b.release != nil:
		b.release(b)
	}
}

// Unique reports whether the caller's reference is the only one, so that
// nobody else reads the memory and it may be written.
func (b *Buffer) Unique() bool {
	b.check("Unique")
	return b.refs.Load() == 1
}

func (b *Buffer) check(method string) {
	if b.refs.Load() <= 0 {
		panic("tensor: " + method + " of a released Buffer")
	}
}

// Allocator gives out memory for tensors. Its methods may be called from any
// goroutine and never wait for memory to come back.
type Allocator interface {
	// Allocate returns a buffer of n bytes with one reference, the
	// caller's. Its content is undefined. The memory begins at a multiple
	// of Alignment. A size that is negative is InvalidArgument, one that
	// the allocator cannot or may not serve ResourceExhausted; the error
	// says the size and the limit.
	Allocate(n int) (*Buffer, error)
}

// Alignment is where allocated memory begins, in bytes: a cache line, which is
// also what the vector instructions of the kernels that read tensors want.
const Alignment = 64

func checkSize(n int) error {
	if n < 0 {
		return status.Errorf(status.InvalidArgument, "cannot allocate %d bytes", n)
	}
	return nil
}
