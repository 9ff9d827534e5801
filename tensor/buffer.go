package tensor

import (
	"context"
	"math"
	"slices"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/status"
)

// Buffer is a block of memory with a reference count. The holder of a reference
// may read the memory. It may write to it only while its reference is the only
// one (Unique, WaitUnique). The last Release returns the memory to its Owner.
//
// A method call on a released Buffer panics, since it is a bug that would
// otherwise read or free memory in other use. In a program that was built with -race
// the panic shows where the last releases were. Buffer cannot guard the slices that
// Bytes returned: do not use them after the release.
type Buffer struct {
	past  releases // first, since an empty last field takes space
	data  []byte   // nil once released
	refs  atomic.Int64
	owner Owner                        // may be nil
	alone atomic.Pointer[uniqueSignal] // of WaitUnique; nil when nobody waits
}

// Owner provides the memory of Buffers and takes it back. A transport recognises
// its own memory, which a device can access without a copy, by its Owner.
type Owner interface {
	// Reclaim takes back data, the same slice that NewOwnedBuffer got. It is
	// called once, after the last reference was released. It runs on the
	// goroutine that released the reference, or where ReleaseBy's caller runs
	// it.
	Reclaim(data []byte)
}

// PromptOwner is an Owner whose Reclaim does not block and calls no foreign code,
// so that ReleaseBy may call it directly.
type PromptOwner interface {
	Owner

	// ReclaimsPromptly does nothing.
	ReclaimsPromptly()
}

// OffHeapOwner is an Owner that knows where its memory is.
type OffHeapOwner interface {
	Owner

	// OffHeap reports whether data, which NewOwnedBuffer got, is not on the Go heap.
	OffHeap(data []byte) bool
}

// released is the value of refs after the last release. It is so far below zero
// that late Retains, even ones whose panic was recovered, do not make it positive
// again.
const released = math.MinInt64 / 2

// NewBuffer returns a buffer over data with one reference, the caller's. The
// buffer owns data until the last reference is released; then release, if not
// nil, is called once, as Owner.Reclaim is.
func NewBuffer(data []byte, release func()) *Buffer {
	if release == nil {
		return NewOwnedBuffer(data, nil)
	}
	return NewOwnedBuffer(data, reclaimFunc(func([]byte) { release() }))
}

// NewOwnedBuffer returns a buffer over data with one reference, the caller's.
// owner, which may be nil, gets data back after the last release.
func NewOwnedBuffer(data []byte, owner Owner) *Buffer {
	b := new(Buffer)
	b.init(data, owner)
	return b
}

// Init makes b, a new Buffer without any use, a buffer over data with one
// reference, as NewOwnedBuffer does. It is for a BufferAllocator.
func (b *Buffer) Init(data []byte, owner Owner) {
	if b.refs.Load() != 0 {
		misuse("Init of a Buffer in use")
	}
	b.init(data, owner)
}

// init sets the fields of a new header.
func (b *Buffer) init(data []byte, owner Owner) {
	b.data, b.owner = data, owner
	b.refs.Store(1)
}

// Slice returns a buffer over n bytes of b from byte off, with one reference, the
// caller's: for example one block of a cache that was allocated as a whole. It holds
// a reference to b until its last one is released. Its references are counted alone: Unique
// of a slice says nothing about b, nor about other slices. While b as a whole is sent, or
// slices that overlap are, the caller must not write to a slice or receive into it; nothing
// refuses that. (b is never Unique while it has slices.) A transport treats a slice as the
// memory of b. A range beyond b is InvalidArgument.
func (b *Buffer) Slice(off, n int) (*Buffer, error) {
	data := b.Bytes()
	if off < 0 || n < 0 || off > len(data) || n > len(data)-off {
		return nil, status.Errorf(status.InvalidArgument, "a slice of %d bytes from byte %d of a buffer with %d", n, off, len(data))
	}
	return NewOwnedBuffer(data[off:off+n:off+n], sliceOf{b.Retain(), off, nil}), nil
}

// Lender is the owner of memory that is lent (Buffer.Lend).
type Lender interface {
	// Returned is called once, when the last reference to what was lent has been released, after the
	// reference of the loan. It runs as Owner.Reclaim does.
	Returned()
	// ReadBegins is called when a transport begins to read the memory for the peer at the other end of a
	// connection, which may be slow or stopped, and ReadEnds when that has ended, with the same value. They must
	// not block.
	ReadBegins(connection any)
	ReadEnds(connection any)
}

// Lend returns a slice of all of b. Its lender, who keeps a reference to b, learns when nobody reads the
// memory any more. The lender must be comparable.
func (b *Buffer) Lend(by Lender) *Buffer {
	data := b.Bytes()
	return NewOwnedBuffer(slices.Clip(data), sliceOf{b.Retain(), 0, by})
}

// Lender returns the lender of b, or of what b is a slice of; nil if it was not lent. The caller must hold a
// reference.
func (b *Buffer) Lender() Lender {
	for {
		s, ok := b.Owner().(sliceOf)
		if !ok || s.lender != nil {
			return s.lender
		}
		b = s.of
	}
}

// Root returns the buffer that b is a slice of, or a slice of such a slice, and where b
// begins in it; b itself if it is none. It adds no reference. The root lives as long as
// the caller has a reference to b.
func (b *Buffer) Root() (root *Buffer, off int) {
	for root = b; ; {
		s, ok := root.Owner().(sliceOf)
		if !ok {
			return root, off
		}
		root, off = s.of, off+s.off
	}
}

// sliceOf is the Owner of a slice.
type sliceOf struct {
	of     *Buffer
	off    int
	lender Lender // of Lend; nil for other slices
}

// Reclaim implements Owner.
func (s sliceOf) Reclaim([]byte) {
	s.of.Release()
	if s.lender != nil {
		s.lender.Returned()
	}
}

// reclaimFunc is an Owner made of a function.
type reclaimFunc func([]byte)

func (f reclaimFunc) Reclaim(data []byte) { f(data) }

// Owner returns the owner of the memory; nil when it has none. The caller must
// hold a reference while it uses what the owner knows about the memory.
func (b *Buffer) Owner() Owner {
	b.check("Owner")
	return b.owner
}

// OffHeap reports whether the memory is known not to be on the Go heap, so that foreign code may
// keep its address while it holds a reference. It is false when the owner does not know.
func (b *Buffer) OffHeap() bool {
	root, _ := b.Root()
	o, ok := root.owner.(OffHeapOwner)
	return ok && o.OffHeap(root.data)
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
	if b.refs.Add(1) <= 1 { // 1 between the last Release's decrement and its Store
		b.misuse("Retain of a released Buffer")
	}
	return b
}

// RetainUnique adds a reference if the caller's is the only one, and reports whether
// it did. Of several goroutines that call it at once one succeeds. A receive into
// memory of the caller begins with it, so that no two write to the memory.
func (b *Buffer) RetainUnique() bool {
	if b.refs.CompareAndSwap(1, 2) {
		return true
	}
	b.check("RetainUnique")
	return false
}

// Release releases one reference. After the last one it calls the owner's
// Reclaim.
func (b *Buffer) Release() {
	if owner, data := b.drop(); owner != nil {
		owner.Reclaim(data)
	}
}

// ReleaseBy is Release for a goroutine that an Owner must not block, such as one
// that polls the completions of a device. After the last reference it passes the
// call of Reclaim to run, which must call it on another goroutine. Reclaim of
// a PromptOwner is called directly.
func (b *Buffer) ReleaseBy(run func(func())) {
	switch owner, data := b.drop(); o := owner.(type) {
	case nil:
	case PromptOwner:
		o.Reclaim(data)
	default:
		run(func() { o.Reclaim(data) })
	}
}

// drop releases one reference. If it was the last, it returns the memory and its
// owner.
func (b *Buffer) drop() (owner Owner, data []byte) {
	number := b.past.record()
	n := b.refs.Add(-1)
	if n <= 1 {
		b.signalUnique()
	}
	switch {
	case n > 0:
		return nil, nil
	case n < 0:
		b.past.forget(number)
		b.misuse("Release of a released Buffer")
	}
	b.refs.Store(released)
	owner, data = b.owner, b.data
	b.owner, b.data = nil, nil // a stale pointer to b keeps the memory no longer alive
	return owner, data
}

// Unique reports whether the caller's reference is the only one, so that the
// caller may write to the memory.
func (b *Buffer) Unique() bool {
	n := b.refs.Load()
	if n <= 0 {
		b.misuse("Unique of a released Buffer")
	}
	return n == 1
}

// uniqueSignal is closed when at most one reference is left.
type uniqueSignal struct{ c chan struct{} }

// WaitUnique waits until Unique reports true: the memory of a tensor that was sent may be
// written again, and memory whose receive has failed is written by no peer any more. The
// caller keeps its reference meanwhile, and gives up all others: it would wait for its own.
// Cancelled or DeadlineExceeded when ctx ends first.
func (b *Buffer) WaitUnique(ctx context.Context) error {
	for !b.Unique() {
		s := b.alone.Load()
		if s == nil {
			s = &uniqueSignal{make(chan struct{})}
			if !b.alone.CompareAndSwap(nil, s) {
				continue
			}
		}
		if b.Unique() { // the other reference was perhaps released before s was there
			return nil
		}
		select {
		case <-s.c:
		case <-ctx.Done():
			return status.Errorf(status.CodeOf(ctx.Err()), "memory of %d bytes still has %d references, so it must not be written; its receiver, or a transport, has not released it", len(b.data), b.refs.Load())
		}
	}
	return nil
}

func (b *Buffer) signalUnique() {
	if s := b.alone.Load(); s != nil && b.alone.CompareAndSwap(s, nil) {
		close(s.c)
	}
}

func (b *Buffer) check(method string) {
	if b.refs.Load() <= 0 {
		b.misuse(method + " of a released Buffer")
	}
}

// misuse panics for a method call on a released Buffer.
func (b *Buffer) misuse(what string) { misuse(what + b.past.String()) }

// misuse panics for a caller that breaks the rules of this package. No input from
// a peer, a user or a file leads to it.
func misuse(what string) {
	panic("tensor: " + what) //nolint:forbidigo // going on would read or free memory in other use
}

// Allocator provides memory for tensors. Its methods may be called from any
// goroutine and never wait for a release.
type Allocator interface {
	// Allocate returns a buffer of n bytes with one reference, the caller's.
	// The content is undefined. The memory begins at a multiple of Alignment.
	// A buffer of 0 bytes takes no memory. Allocate returns InvalidArgument
	// for a negative size, and ResourceExhausted, with the size and the limit,
	// when the memory is not available or the limit does not allow it.
	Allocate(n int) (*Buffer, error)
}

// BufferAllocator is an Allocator that can fill a header of its caller. Allocate, the
// function, then needs one allocation for the headers of tensor and buffer together.
type BufferAllocator interface {
	Allocator

	// AllocateBuffer is Allocate into b, a new Buffer, by its Init. After an error b
	// is as it was.
	AllocateBuffer(b *Buffer, n int) error
}

// AllocateBuffer allocates n bytes from a into b, a new Buffer, whether a is a
// BufferAllocator or not. It is for an Allocator that passes calls on to others. After
// an error b is as it was.
func AllocateBuffer(a Allocator, b *Buffer, n int) error {
	if f, ok := a.(BufferAllocator); ok {
		return f.AllocateBuffer(b, n)
	}
	other, err := a.Allocate(n)
	if err != nil {
		return err
	}
	b.Init(other.data, other.owner) // nobody else has the other header
	return nil
}

// AllocateBuffer implements BufferAllocator.
func (p *Pool) AllocateBuffer(b *Buffer, n int) error { return p.allocate(b, n) }

// Reserver is an Allocator whose limit also covers memory that it does not
// provide: the Go strings of a tensor, which are on the Go heap.
type Reserver interface {
	Allocator

	// Reserve counts n bytes against the limit until the last reference to
	// the returned buffer is released. That buffer has no memory. The errors
	// are those of Allocate.
	Reserve(n int64) (*Buffer, error)
}

// Reserve counts n bytes against the limit of a, if a is a Reserver. Call it
// before the memory is allocated, since a peer may have chosen the size.
func Reserve(a Allocator, n int64) (*Buffer, error) {
	if r, ok := a.(Reserver); ok {
		return r.Reserve(n)
	}
	return NewBuffer(nil, nil), nil
}

// Alignment is the alignment of allocated memory in bytes: the size of a cache
// line, which is also enough for the vector instructions of compute kernels.
const Alignment = 64

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
