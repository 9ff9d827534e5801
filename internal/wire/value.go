package wire

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"

	"github.com/tryst-rdma/tryst/tensor"
)

// Value describes a value: everything but its content.
type Value struct {
	DType tensor.DType
	// Dead marks the value of a branch that was not taken.
	Dead bool
	// Proto is set when the content is a serialised tensorflow.TensorProto, because the
	// elements are not plain memory (strings, resources, variants).
	Proto bool
	// Size is the length of the content in bytes.
	Size uint64
	// Dims is the shape.
	Dims Dims
}

const (
	valueDead  = 1 << 0
	valueProto = 1 << 1
)

// Dims are the encoded dimensions of a shape, outermost first, 8 bytes each. Scalars have
// none.
type Dims []byte

// Count returns the number of dimensions.
func (d Dims) Count() int { return len(d) / 8 }

// At returns dimension number i, from 0.
func (d Dims) At(i int) int64 { return int64(binary.LittleEndian.Uint64(d[i*8:])) } //nolint:gosec // the same bits

// AppendTo decodes all dimensions and appends them to a slice of the caller.
func (d Dims) AppendTo(dims []int64) []int64 {
	for i := range d.Count() {
		dims = append(dims, d.At(i))
	}
	return dims
}

// AppendDims encodes dimensions.
func AppendDims(b []byte, dims ...int64) Dims {
	for _, d := range dims {
		b = binary.LittleEndian.AppendUint64(b, uint64(d)) //nolint:gosec // the same bits
	}
	return b
}

// Same reports whether two values differ at most in their content.
func (v *Value) Same(o *Value) bool {
	return v.DType == o.DType && v.Dead == o.Dead && v.Proto == o.Proto && v.Size == o.Size && bytes.Equal(v.Dims, o.Dims)
}

// CopyTo copies v to o. The dimensions go into memory of o, which it reuses.
func (v *Value) CopyTo(o *Value) {
	dims := append(o.Dims[:0], v.Dims...)
	*o = *v
	o.Dims = dims
}

// Clone returns a copy that shares no memory with v.
func (v *Value) Clone() Value {
	o := *v
	o.Dims = slices.Clone(v.Dims)
	return o
}

const valueFixed = 16

func (v *Value) length() int { return valueFixed + len(v.Dims) }

func (v *Value) append(b []byte) []byte {
	var f byte
	if v.Dead {
		f |= valueDead
	}
	if v.Proto {
		f |= valueProto
	}
	b = binary.LittleEndian.AppendUint32(b, uint32(v.DType)) //nolint:gosec // the same bits
	b = append(b, f, byte(v.Dims.Count()), 0, 0)             //nolint:gosec // at most 254
	b = binary.LittleEndian.AppendUint64(b, v.Size)
	return append(b, v.Dims...)
}

// parse reads a value and checks that its size matches its type and shape.
func (v *Value) parse(r *reader) {
	if b := r.bytes(valueFixed); b != nil {
		v.parseFrom(b, r)
	}
}

// parseFrom is parse when the first valueFixed bytes have been read from r as b.
func (v *Value) parseFrom(b []byte, r *reader) {
	v.DType = tensor.DType(binary.LittleEndian.Uint32(b)) //nolint:gosec // the same bits
	f, n := b[4], int(b[5])
	v.Size = binary.LittleEndian.Uint64(b[8:])
	v.Dead, v.Proto = f&valueDead != 0, f&valueProto != 0
	switch zero := binary.LittleEndian.Uint16(b[6:]); {
	case zero != 0:
		r.fail("has a value with %#04x where zero belongs", zero)
	case f&^(valueDead|valueProto) != 0:
		r.fail("has a value with flags %#02x", f)
	case n > tensor.MaxDims:
		r.fail("has a shape of %d dimensions, the most is %d", n, tensor.MaxDims)
	case !v.DType.Valid():
		r.fail("has elements of unknown type %d", int32(v.DType))
	case v.Proto == v.DType.Plain():
		r.fail("has elements of type %v, and proto=%v", v.DType, v.Proto)
	}
	v.Dims = Dims(r.bytes(8 * n))
	if r.err != nil {
		return
	}
	count, wrong := uint64(1), uint64(0)
	for i := range n {
		d := uint64(v.Dims.At(i)) //nolint:gosec // the same bits
		over, product := bits.Mul64(count, d)
		wrong |= over | (product|d)>>63
		count = product
	}
	over, size := bits.Mul64(count, uint64(v.DType.Size())) //nolint:gosec // never negative
	switch {
	case wrong != 0:
		v.failShape(r)
	case v.Size > math.MaxInt64:
		r.fail("has a content of %d bytes", v.Size)
	case v.Dead: // so that it takes no memory at the peer (PROTOCOL.md section 3)
		if v.DType != tensor.Float32 || n != 1 || count != 0 || v.Size != 0 {
			r.fail("has a dead value of type %v with %d elements in %d dimensions and %d bytes, want float[0]", v.DType, count, n, v.Size)
		}
	case v.Proto:
	case v.Size != size || over != 0:
		r.fail("has %d elements of %v, which do not take %d bytes", count, v.DType, v.Size)
	}
}

// failShape reports the first dimension that is negative, or with which the shape has more
// elements than a tensor can have.
func (v *Value) failShape(r *reader) {
	count := int64(1)
	for i := range v.Dims.Count() {
		d := v.Dims.At(i)
		if d < 0 || d > 0 && count > math.MaxInt64/d {
			r.fail("has an impossible shape: dimension %d is %d", i, d)
			return
		}
		count *= d
	}
}
