package tensor

import (
	"math"
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
	data  []byte // nil once released
	refs  atomic.Int64
	owner Owner // may be nil
}

// Owner is where a Buffer's memory comes from. By it a transport knows its own
// memory again, which a device can read where it lies.
type Owner interface {
	// Reclaim takes data back, all of it as NewOwnedBuffer got it. It is
	// called once, when the last reference is gone, on the goroutine that
	// released it or, by a transport, on one of its own (ReleaseBy).
	Reclaim(data []byte)
}

// PromptOwner is an Owner whose Reclaim waits for nobody and runs no code of
// others: ReleaseBy calls it at once.
type PromptOwner interface {
	Owner

	// ReclaimsPromptly does nothing.
	ReclaimsPromptly()
}

// released is what refs becomes with the last reference: so far below zero
// that no number of calls that come too late, even ones whose panic was
// recovered, makes it positive again.
const released = math.MinInt64 / 2

// NewBuffer returns a buffer over data with one reference, the caller's.
// release, if not nil, is called once when the last reference is gone, as
// Owner.Reclaim is; until then data belongs to the buffer.
func NewBuffer(data []byte, release func()) *Buffer {
	if release == nil {
		return NewOwnedBuffer(data, nil)
	}
	return NewOwnedBuffer(data, reclaimFunc(func([]byte) { release() }))
}

// NewOwnedBuffer is NewBuffer for memory that goes back to owner, which may be
// nil.
func NewOwnedBuffer(data []byte, owner Owner) *Buffer {
	b := new(Buffer)
	b.init(data, owner)
	return b
}

// init makes a new header that of data.
func (b *Buffer) init(data []byte, owner Owner) {
	b.data, b.owner = data, owner
	b.refs.Store(1)
}

// reclaimFunc is an Owner that is nothing but its function.
type reclaimFunc func([]byte)

func (f reclaimFunc) Reclaim(data []byte) { f(data) }

// Owner returns where the memory comes from; nil where nobody takes it back.
// What it knows of the memory is true while the caller holds a reference.
func (b *Buffer) Owner() Owner {
	b.check("Owner")
	return b.owner
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
	if b.refs.Add(1) <= 1 { // 1 when the last Release is under way
		misuse("Retain of a released Buffer")
	}
	return b
}

// Release gives up one reference.
func (b *Buffer) Release() {
	if owner, data := b.drop(); owner != nil {
		owner.Reclaim(data)
	}
}

// ReleaseBy is Release for those whom the owner must not hold up, as who polls the
// completions of a device for many: where it was the last reference, what the owner
// does about it is given to run, which has it done elsewhere. A PromptOwner does it at
// once.
func (b *Buffer) ReleaseBy(run func(func())) {
	switch owner, data := b.drop(); o := owner.(type) {
	case nil:
	case PromptOwner:
		o.Reclaim(data)
	default:
		run(func() { o.Reclaim(data) })
	}
}

// drop gives up one reference. If it was the last it returns who gets the memory back.
func (b *Buffer) drop() (owner Owner, data []byte) {
	switch n := b.refs.Add(-1); {
	case n > 0:
		return nil, nil
	case n < 0:
		misuse("Release of a released Buffer")
	}
	b.refs.Store(released)
	owner, data = b.owner, b.data
	b.owner, b.data = nil, nil // whoever still holds b does not hold the memory
	return owner, data
}

// Unique reports whether the caller's reference is the only one, so that
// nobody else reads the memory and it may be written.
func (b *Buffer) Unique() bool {
	n := b.refs.Load()
	if n <= 0 {
		misuse("Unique of a released Buffer")
	}
	return n == 1
}

func (b *Buffer) check(method string) {
	if b.refs.Load() <= 0 {
		misuse(method + " of a released Buffer")
	}
}

// misuse ends a program that breaks the rules of this package. Nothing that
// comes from a peer, a user or a file leads here.
func misuse(what string) {
	panic("tensor: " + what) //nolint:forbidigo // going on would read or free memory of somebody else
}

// Allocator gives out memory for tensors. Its methods may be called from any
// goroutine and never wait for memory to come back.
type Allocator interface {
	// Allocate returns a buffer of n bytes with one reference, the
	// caller's. Its content is undefined. The memory begins at a multiple
	// of Alignment. A size that is negative is InvalidArgument, one that
	// the allocator cannot or may not serve ResourceExhausted; the error
	// says the size and the limit. A buffer of 0 bytes takes no memory.
	Allocate(n int) (*Buffer, error)
}

// Reserver is an Allocator with a limit that also counts memory which it does not give:
// the Go strings of a tensor, which only the garbage collector can free.
type Reserver interface {
	Allocator

	// Reserve counts n bytes against the limit until the last reference to the buffer
	// that it returns is gone. That buffer has no memory. It fails like Allocate.
	Reserve(n int64) (*Buffer, error)
}

// Reserve counts n bytes against the limit of a, if a is a Reserver. Reserve before the
// memory is made: a peer may have chosen its size.
func Reserve(a Allocator, n int64) (*Buffer, error) {
	if r, ok := a.(Reserver); ok {
		return r.Reserve(n)
	}
	return NewBuffer(nil, nil), nil
}

// Alignment is where allocated memory begins, in bytes: a cache line, which is
// also what the vector instructions of the kernels that read tensors want.
const Alignment = 64

// maxBlock is more memory than any process can have: 2⁴⁷ bytes is the largest
// address space of the machines Go supports. Beyond it the runtime panics
// instead of refusing. On 32-bit machines it leaves room to round up.
const maxBlock = min(1<<47, math.MaxInt-pageMultiple)

func checkSize(n int) error {
	switch {
	case n < 0:
		return status.Errorf(status.InvalidArgument, "cannot allocate %d bytes", n)
	case n > maxBlock:
		return status.Errorf(status.ResourceExhausted,
			"cannot allocate %d bytes: a process has at most %d", n, maxBlock)
	}
	return nil
}
