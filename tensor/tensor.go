// Package tensor has tensors over reference-counted memory.
//
//	Tensor ─ dtype, shape, name
//	   └─ Buffer ─ memory and its reference count ← Allocator (Heap, Pool)
//
// Elements are little-endian and row-major, in memory, in messages and in files;
// therefore only little-endian machines are supported. A String tensor has its
// elements as Go strings. Its Buffer has no memory: it counts references, and
// bytes where the allocator has a limit (Reserve).
//
// The memory of a Tensor may be written only while one reference exists. A Send
// takes a second one.
package tensor

import (
	"bytes"
	"slices"

	"github.com/tryst-rdma/tryst/status"
)

// Tensor is a typed, shaped view of a Buffer. The header is immutable and may
// be shared; the references that Retain and Release count are the buffer's.
type Tensor struct {
	dtype DType
	shape Shape
	name  string
	buf   *Buffer
	elems []string // elements that are not plain memory
}

// New returns a tensor over buf and takes over the caller's reference to it. After
// an error the caller keeps the reference. The buffer must have at least the
// bytes of the elements.
func New(dtype DType, shape Shape, buf *Buffer) (*Tensor, error) {
	n, err := ByteSize(dtype, shape)
	if err != nil {
		return nil, err
	}
	if buf.Len() < n {
		return nil, status.Errorf(status.InvalidArgument,
			"a %v tensor of shape %v takes %d bytes; the buffer has %d", dtype, shape, n, buf.Len())
	}
	return &Tensor{dtype: dtype, shape: shape, buf: buf}, nil
}

// Allocate returns a tensor of plain elements over new memory, whose content
// is undefined. The caller holds the only reference and may write to it.
func Allocate(a Allocator, dtype DType, shape Shape) (*Tensor, error) {
	n, err := ByteSize(dtype, shape)
	if err != nil {
		return nil, err
	}
	if p, ok := a.(BufferAllocator); ok {
		// One allocation for both headers: it is a large part of the cost of a small
		// tensor.
		var both struct {
			t   Tensor
			buf Buffer
		}
		if err := p.AllocateBuffer(&both.buf, n); err != nil {
			return nil, err
		}
		both.t = Tensor{dtype: dtype, shape: shape, buf: &both.buf}
		return &both.t, nil
	}
	buf, err := a.Allocate(n)
	if err != nil {
		return nil, err
	}
	return &Tensor{dtype: dtype, shape: shape, buf: buf}, nil
}

// Make is Allocate for the element type T and the given extents, outermost first; none for a scalar:
//
//	t, err := tensor.Make[float32](s.Allocator(), 1024, 4096)
//
// The errors are those of NewShape and Allocate. Values gives the elements, to be written.
func Make[T Element](a Allocator, dims ...int64) (*Tensor, error) {
	shape, err := NewShape(dims...)
	if err != nil {
		return nil, err
	}
	return Allocate(a, TypeOf[T](), shape)
}

// FromBytes returns a tensor over data, which is not copied and belongs to the
// tensor. Its length must be that of the elements.
func FromBytes(dtype DType, shape Shape, data []byte) (*Tensor, error) {
	n, err := ByteSize(dtype, shape)
	if err != nil {
		return nil, err
	}
	if len(data) != n {
		return nil, status.Errorf(status.InvalidArgument,
			"a %v tensor of shape %v takes %d bytes; %d were given", dtype, shape, n, len(data))
	}
	return &Tensor{dtype: dtype, shape: shape, buf: NewBuffer(data, nil)}, nil
}

// FromStrings returns a String tensor with the given elements, row-major.
// The slice belongs to the tensor.
func FromStrings(shape Shape, elems []string) (*Tensor, error) {
	return FromElements(String, shape, elems)
}

// FromElements returns a tensor whose elements are not plain memory: strings, or
// for Resource and Variant a serialised ResourceHandleProto or
// VariantTensorDataProto for each element. The slice belongs to the tensor.
func FromElements(dtype DType, shape Shape, elems []string) (*Tensor, error) {
	if !dtype.Valid() || dtype.Plain() {
		return nil, status.Errorf(status.InvalidArgument,
			"elements of type %v are plain memory or not valid", dtype)
	}
	if n := shape.Elements(); n != int64(len(elems)) {
		return nil, status.Errorf(status.InvalidArgument,
			"a %v tensor of shape %v has %d elements; %d were given", dtype, shape, n, len(elems))
	}
	return &Tensor{dtype: dtype, shape: shape, buf: NewBuffer(nil, nil), elems: elems}, nil
}

// FromReserved is FromElements for elements whose memory was counted by Reserve,
// which returned reserved. It takes over the caller's reference to reserved. After
// an error the caller keeps the reference.
func FromReserved(dtype DType, shape Shape, elems []string, reserved *Buffer) (*Tensor, error) {
	t, err := FromElements(dtype, shape, elems)
	if err != nil {
		return nil, err
	}
	t.buf = reserved
	return t, nil
}

// DType returns the type of the elements.
func (t *Tensor) DType() DType { return t.dtype }

// Shape returns the extents.
func (t *Tensor) Shape() Shape { return t.shape }

// Name returns the name under which the tensor was stored or published; empty
// when it has none.
func (t *Tensor) Name() string { return t.name }

// Named returns a tensor with the given name over the same memory. It adds no
// reference: use the result in place of t.
func (t *Tensor) Named(name string) *Tensor {
	c := *t
	c.name = name
	return &c
}

// Bytes returns the elements' memory, little-endian and row-major, valid while
// the caller holds a reference; nil when the elements are not plain memory.
func (t *Tensor) Bytes() []byte {
	data := t.buf.Bytes()
	if !t.dtype.Plain() {
		return nil
	}
	n := t.Size()
	return data[:n:n]
}

// Elements returns the elements of a tensor that is not plain memory,
// row-major; nil for others. The slice must not be changed.
func (t *Tensor) Elements() []string {
	t.buf.check("Elements")
	return t.elems
}

// ElementOverhead is the bytes of an element that is not plain memory, beside its
// content: the header of a Go string.
const ElementOverhead = 16

// MemorySize returns the bytes that limits count for the tensor: Size, and
// ElementOverhead for each element that is not plain memory.
func (t *Tensor) MemorySize() int64 { return t.Size() + ElementOverhead*int64(len(t.elems)) }

// Size returns the bytes of the elements; for strings, the sum of their lengths.
func (t *Tensor) Size() int64 {
	if t.dtype.Plain() {
		return int64(t.dtype.Size()) * t.shape.Elements()
	}
	var n int64
	for _, e := range t.elems {
		n += int64(len(e))
	}
	return n
}

// Buffer returns the tensor's memory. It adds no reference.
func (t *Tensor) Buffer() *Buffer { return t.buf }

// Retain adds a reference to the memory and returns t.
func (t *Tensor) Retain() *Tensor {
	t.buf.Retain()
	return t
}

// Release releases one reference to the memory.
func (t *Tensor) Release() { t.buf.Release() }

// Lend returns a tensor over the same memory with a reference of its own, the caller's (Buffer.Lend).
func (t *Tensor) Lend(by Lender) *Tensor {
	c := *t
	c.buf = t.buf.Lend(by)
	return &c
}

// ReleaseBy is Buffer.ReleaseBy for the tensor's reference.
func (t *Tensor) ReleaseBy(run func(func())) { t.buf.ReleaseBy(run) }

// Clone returns a copy in new memory from a.
func (t *Tensor) Clone(a Allocator) (*Tensor, error) {
	if !t.dtype.Plain() {
		reserved, err := Reserve(a, t.MemorySize())
		if err != nil {
			return nil, err
		}
		return &Tensor{dtype: t.dtype, shape: t.shape, name: t.name,
			buf: reserved, elems: slices.Clone(t.Elements())}, nil
	}
	c, err := Allocate(a, t.dtype, t.shape)
	if err != nil {
		return nil, err
	}
	copy(c.Bytes(), t.Bytes())
	c.name = t.name
	return c, nil
}

// Index returns element i of the first dimension, such as block i of a cache that was allocated
// as a whole: a tensor over that part of the memory, with one reference, the caller's. It may be
// received into and sent as any other. References to it are counted alone (Buffer.Slice), and hold
// t's memory: while t itself is sent do not write to an element or receive into it, although its
// Unique reports true. InvalidArgument for a scalar, for an i that t does not have, and for elements that
// are not plain memory.
func (t *Tensor) Index(i int64) (*Tensor, error) {
	if !t.dtype.Plain() || t.shape.Rank() == 0 || i < 0 || i >= t.shape.Dim(0) {
		return nil, status.Errorf(status.InvalidArgument, "a %v has no element %d of plain memory in its first dimension", t, i)
	}
	shape, err := NewShape(t.shape.Dims()[1:]...)
	if err != nil {
		return nil, err
	}
	n, err := ByteSize(t.dtype, shape)
	if err != nil {
		return nil, err
	}
	buf, err := t.buf.Slice(int(i)*n, n)
	if err != nil {
		return nil, err
	}
	return &Tensor{dtype: t.dtype, shape: shape, buf: buf}, nil
}

// String describes the tensor in a few characters: "float[2,3]".
func (t *Tensor) String() string { return t.dtype.String() + t.shape.String() }

// Equal reports whether both tensors have the same type, shape and elements.
// Floats are compared bit by bit. Names are not compared.
func Equal(a, b *Tensor) bool {
	return a.dtype == b.dtype && a.shape.Equal(b.shape) &&
		bytes.Equal(a.Bytes(), b.Bytes()) && slices.Equal(a.Elements(), b.Elements())
}
