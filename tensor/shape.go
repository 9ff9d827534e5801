package tensor

import (
	"math"
	"slices"
	"strconv"

	"github.com/tryst-rdma/tryst/status"
)

// Shape is the extents of a tensor's dimensions, outermost first (row-major
// order). It is immutable. The zero Shape is that of a scalar, which has no
// dimensions and one element.
type Shape struct {
	dims  []int64
	count int64 // product of dims; meaningful only when dims is not empty
}

// NewShape returns the shape with the given dimensions, which it copies. It
// returns InvalidArgument for more than MaxDims dimensions, for a negative one,
// and for more than 2⁶³−1 elements. As in TensorFlow the dimensions are
// multiplied in order, so {0, 2⁶², 4} is valid and {2⁶², 4, 0} is not.
func NewShape(dims ...int64) (Shape, error) {
	if len(dims) > MaxDims {
		return Shape{}, status.Errorf(status.InvalidArgument,
			"shape has %d dimensions; at most %d are allowed", len(dims), MaxDims)
	}
	if len(dims) == 0 {
		return Shape{}, nil
	}
	count := int64(1)
	for i, d := range dims {
		if d < 0 {
			return Shape{}, status.Errorf(status.InvalidArgument,
				"shape dimension %d is negative (%d)", i, d)
		}
		if d > 0 && count > math.MaxInt64/d {
			return Shape{}, status.Errorf(status.InvalidArgument,
				"shape %s has more than 2^63-1 elements", formatDims(dims))
		}
		count *= d
	}
	return Shape{dims: slices.Clone(dims), count: count}, nil
}

// Vector returns the shape {n}; n must not be negative.
func Vector(n int) Shape {
	if n < 0 {
		misuse("Vector with a negative length")
	}
	return Shape{dims: []int64{int64(n)}, count: int64(n)}
}

// Rank returns the number of dimensions; 0 for a scalar.
func (s Shape) Rank() int { return len(s.dims) }

// Dim returns the extent in dimension i, 0 ≤ i < Rank.
func (s Shape) Dim(i int) int64 { return s.dims[i] }

// Dims returns a copy of the extents.
func (s Shape) Dims() []int64 { return slices.Clone(s.dims) }

// AppendDims appends the extents to b and returns the result.
func (s Shape) AppendDims(b []int64) []int64 { return append(b, s.dims...) }

// Elements returns the number of elements: the product of the extents, 1 for
// a scalar.
func (s Shape) Elements() int64 {
	if len(s.dims) == 0 {
		return 1
	}
	return s.count
}

// Equal reports whether both shapes have the same dimensions.
func (s Shape) Equal(t Shape) bool { return slices.Equal(s.dims, t.dims) }

// String returns the extents in brackets: "[2,3]", "[]" for a scalar.
func (s Shape) String() string { return formatDims(s.dims) }

func formatDims(dims []int64) string {
	b := make([]byte, 0, 2+8*len(dims))
	b = append(b, '[')
	for i, d := range dims {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, d, 10)
	}
	return string(append(b, ']'))
}

// ByteSize returns the bytes of the elements of a tensor. It returns
// InvalidArgument for a type whose elements are not plain memory, and for a size
// that an int does not hold.
func ByteSize(dtype DType, shape Shape) (int, error) {
	size := int64(dtype.Size())
	if dtype.IsRef() {
		return 0, status.Errorf(status.InvalidArgument,
			"%v is a reference to a variable; a tensor's type is %v", dtype, dtype.Base())
	}
	if size == 0 {
		return 0, status.Errorf(status.InvalidArgument,
			"elements of type %v are not plain memory", dtype)
	}
	n := shape.Elements()
	if n > math.MaxInt/size {
		return 0, status.Errorf(status.InvalidArgument,
			"a %v tensor of shape %v takes more than %d bytes", dtype, shape, math.MaxInt)
	}
	return int(n * size), nil
}
