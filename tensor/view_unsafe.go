// This file converts between slices of elements and slices of bytes without a
// copy, for which the standard library has no other way. Each function checks
// type, length and alignment first.

package tensor

import (
	"bytes"
	"reflect"
	"unsafe"

	"github.com/tryst-rdma/tryst/status"
)

// Element is a Go type for one element of a tensor. Float16Bits and BFloat16Bits hold the bits
// of the two 16-bit floats, which Go does not have.
type Element interface {
	bool | int8 | int16 | int32 | int64 | uint8 | uint16 | uint32 | uint64 |
		float32 | float64 | complex64 | complex128 | Float16Bits | BFloat16Bits
}

// Float16Bits holds the bits of one Float16 element (IEEE 754 binary16).
type Float16Bits uint16

// BFloat16Bits holds the bits of one BFloat16 element: the upper half of a float32.
type BFloat16Bits uint16

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
	case Float16Bits:
		return Float16
	default:
		return BFloat16
	}
}

// FromSlice returns a tensor over values, which are not copied. The caller must
// not write to values until the last reference is released.
func FromSlice[T Element](shape Shape, values []T) (*Tensor, error) {
	var zero T
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), len(values)*int(unsafe.Sizeof(zero)))
	return FromBytes(TypeOf[T](), shape, data)
}

// Values returns the elements of t as a slice over its memory, valid while the
// caller holds a reference. The Go type of quantised and small integers is the
// integer with the same sign and size in memory; that of 8-bit and 4-bit floats
// is uint8, with their bits. Values returns InvalidArgument when T is not the Go
// type of t's elements, or when a Bool tensor has a byte that is neither 0 nor 1.
// It returns FailedPrecondition when the memory is not aligned for T, as is
// possible for a tensor over bytes of a file.
func Values[T Element](t *Tensor) ([]T, error) {
	if TypeOf[T]() != heldBy(t.dtype) {
		return nil, status.Errorf(status.InvalidArgument,
			"the tensor has elements of type %v, which have another Go type than %v", t.dtype, reflect.TypeFor[T]())
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
		// For the compiler a bool is 0 or 1. The behaviour of a program
		// with another byte, from a peer, would be undefined.
		if i := bytes.IndexFunc(data, func(r rune) bool { return r > 1 }); i >= 0 {
			return nil, status.Errorf(status.InvalidArgument,
				"element %d of the bool tensor is %d, neither 0 nor 1", i, data[i])
		}
	}
	return unsafe.Slice((*T)(p), t.shape.Elements()), nil
}

// heldBy returns the DType for which TypeOf stands for d's elements: an integer
// for types that Go does not have, d itself otherwise.
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

// alignedBytes returns n zero bytes, aligned to Alignment.
func alignedBytes(n int) []byte {
	if n >= pageAligned || n == 0 {
		return make([]byte, n) // the runtime aligns large blocks to pages
	}
	b := make([]byte, n+Alignment-1)
	skip := -int(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) & (Alignment - 1)
	return b[skip : skip+n : skip+n]
}

// pageAligned is the size in bytes from which the Go runtime aligns a block to
// pages. It is above the runtime's maxSmallSize; a test checks the alignment.
const pageAligned = 64 << 10
