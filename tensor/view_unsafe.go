// This file reinterprets memory: elements as bytes and bytes as elements. The
// standard library offers no other way that does not copy. Each function
// checks type, length and alignment before it does.

package tensor

import (
	"bytes"
	"reflect"
	"unsafe"

	"github.com/tryst-rdma/tryst/status"
)

// Element is a Go type that holds one element of a tensor. Types that Go
// lacks are held as their bits: Half and Brain for the two 16-bit floats.
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 |
		float32 | float64 | complex64 | complex128 | Half | Brain
}

// Half holds the bits of one Float16 element (IEEE 754 binary16).
type Half uint16

// Brain holds the bits of one BFloat16 element: the upper half of a float32.
type Brain uint16

// TypeOf returns the DType whose elements have the Go type T.
func TypeOf[T Element]() DType {
	var zero T
	switch any(zero).(type) {
	case bool:
		return Bool
	case int8:
		return Int8
	case int16:
		return Int16
	case int32:
		return Int32
	case int64:
		return Int64
	case uint8:
		return Uint8
	case uint16:
		return Uint16
	case uint32:
		return Uint32
	case uint64:
		return Uint64
	case float32:
		return Float32
	case float64:
		return Float64
	case complex64:
		return Complex64
	case complex128:
		return Complex128
	case Half:
		return Float16
	default:
		return BFloat16
	}
}

// FromSlice returns a tensor over values, which are not copied: until the last
// reference is gone they must not be written.
func FromSlice[T Element](shape Shape, values []T) (*Tensor, error) {
	var zero T
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(zero)))
	return FromBytes(TypeOf[T](), shape, data)
}

// Values returns the elements of t as a slice over its memory, valid while the
// caller holds a reference. It fails with InvalidArgument when t's elements
// are not held by the Go type T (quantised and small integers are held by the
// integer of the same sign whose size they take, small floats as their bits
// by uint8) or when a Bool tensor has a byte that is neither 0 nor 1; and with
// FailedPrecondition when the memory is not aligned for T, as can happen to a
// tensor over bytes of a file.
func Values[T Element](t *Tensor) ([]T, error) {
	if TypeOf[T]() != heldBy(t.dtype) {
		return nil, status.Errorf(status.InvalidArgument,
			"tensor holds %v; %v asked for", t.dtype, reflect.TypeFor[T]())
	}
	data := t.Bytes()
	if len(data) == 0 {
		return nil, nil
	}
	p := unsafe.Pointer(unsafe.SliceData(data))
	var zero T
	if uintptr(p)%unsafe.Alignof(zero) != 0 {
		return nil, status.Errorf(status.FailedPrecondition,
			"memory of the %v tensor is not aligned to %d bytes; Clone it first", t.dtype, unsafe.Alignof(zero))
	}
	if t.dtype == Bool {
		// The compiler takes a bool to be 0 or 1; any other byte from a
		// peer would have no defined meaning.
		if i := bytes.IndexFunc(data, func(r rune) bool { return r > 1 }); i >= 0 {
			return nil, status.Errorf(status.InvalidArgument,
				"element %d of the bool tensor is %d, neither 0 nor 1", i, data[i])
		}
	}
	return unsafe.Slice((*T)(p), t.shape.Elements()), nil
}

// heldBy returns the type with the same elements in memory that has a Go type.
func heldBy(d DType) DType {
	switch d {
	case QInt8, Int4, Int2:
		return Int8
	case QUint8, Uint4, Uint2,
		Float8E5M2, Float8E4M3FN, Float8E4M3FNUZ, Float8E4M3B11, Float8E5M2FNUZ, Float4E2M1FN:
		return Uint8
	case QInt16:
		return Int16
	case QUint16:
		return Uint16
	case QInt32:
		return Int32
	}
	return d
}

// alignedBytes returns n zero bytes that begin at a multiple of Alignment.
func alignedBytes(n int) []byte {
	if n >= pageAligned || n == 0 {
		return make([]byte, n) // the runtime aligns large blocks to pages
	}
	b := make([]byte, n+Alignment-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (Alignment - 1)
	return b[skip : skip+n : skip+n]
}

// pageAligned is the size from which the Go runtime gives a block pages of its
// own (runtime: maxSmallSize is below it); a test checks that it still does.
const pageAligned = 64 << 10
