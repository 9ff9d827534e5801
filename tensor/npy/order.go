package npy

import "github.com/tryst-rdma/tryst/tensor"

// order walks over the elements of an array in the order of a file and gives
// each one's place in row-major order.
type order struct {
	dims, strides []int64 // the fastest first; strides in elements
	index         []int64
	place         int64
}

// newOrder returns the order of a column-major file, or of a row-major one,
// where the places just count up.
func newOrder(shape tensor.Shape, fortran bool) *order {
	if !fortran {
		return &order{dims: []int64{shape.Elements()}, strides: []int64{1}, index: []int64{0}}
	}
	dims := shape.Dims()
	strides := make([]int64, len(dims))
	stride := int64(1)
	for i := len(dims) - 1; i >= 0; i-- {
		strides[i] = stride
		stride *= dims[i]
	}
	return &order{dims: dims, strides: strides, index: make([]int64, len(dims))}
}

// next returns the place of the next element. It is called at most once for
// each.
func (o *order) next() int64 {
	place := o.place
	for i := range o.dims {
		o.index[i]++
		o.place += o.strides[i]
		if o.index[i] < o.dims[i] {
			break
		}
		o.place -= o.strides[i] * o.dims[i]
		o.index[i] = 0
	}
	return place
}

// ordered reports whether row-major and column-major order differ: when at
// least two dimensions are larger than one, and none is zero.
func ordered(shape tensor.Shape) bool {
	large := 0
	for i := range shape.Rank() {
		if shape.Dim(i) > 1 {
			large++
		}
	}
	return large > 1 && shape.Elements() > 0
}
