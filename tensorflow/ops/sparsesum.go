package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// sparseSum is the sum of sparse gradients: rows of a tensor with their indices. As in TensorFlow the mean of a row
// is that of the gradients which have it, and the indices of each gradient should be in order: those that are not
// stay apart.
type sparseSum struct {
	of      *accumulator
	values  *tensor.Tensor // nil without gradients
	indices *tensor.Tensor // int64, of each row
	counts  *tensor.Tensor // int32, of the gradients in each row
}

func (s *sparseSum) inputs() []tensor.DType {
	return []tensor.DType{tensor.Int64, s.of.dtype, tensor.Int64}
}

func (s *sparseSum) outputs() []tensor.DType {
	return []tensor.DType{tensor.Int64, s.of.dtype, tensor.Int64}
}

func (s *sparseSum) add(c *graph.Context, count int) error {
	indices, values := c.Input(2), c.Input(3)
	if err := s.check(c, indices, values, c.Input(4), count); err != nil {
		return err
	}
	index, err := tensor.Values[int64](indices)
	if err != nil {
		return err
	}
	if count == 0 {
		return s.begin(c, indices, values)
	}
	next, err := s.merge(c, index, values)
	if err != nil {
		return err
	}
	s.release()
	s.values, s.indices, s.counts = next.values, next.indices, next.counts
	return nil
}

// check checks a gradient, with TensorFlow's texts in TensorFlow's order.
func (s *sparseSum) check(c *graph.Context, indices, values, shape *tensor.Tensor, count int) error {
	switch rows := indices.Shape(); {
	case rows.Rank() != 1:
		return invalid("Input indices should be vector but received shape: %s", rows)
	case values.Shape().Rank() == 0:
		return invalid("Values cannot be 0-dimensional.")
	case values.Shape().Dim(0) != rows.Dim(0):
		return invalid("Expected %d non-empty input values, got %d", rows.Dim(0), values.Shape().Dim(0))
	}
	want := s.of.shape.dims
	if c.Node.Bool("has_known_shape") {
		if err := checkGiven(want, shape); err != nil {
			return err
		}
	}
	if len(want) > 0 && want[0] >= 0 {
		index, err := tensor.Values[int64](indices)
		if err != nil {
			return err
		}
		for i, x := range index {
			if x >= want[0] {
				return invalid("Shape mismatch: index of slice %d exceeded limits of shape; index is %d exceeded %d", i, x, want[0])
			}
		}
	}
	have := values.Shape().Dims()
	switch {
	case count > 0:
		want = s.values.Shape().Dims()
		if len(want) != len(have) {
			return invalid("Shape mismatch: expected values rank %d, got %d", len(want), len(have))
		}
	case len(want) > len(have):
		return invalid("Shape mismatch: expected values rank at least %d, got %d", len(want), len(have))
	}
	for i := 1; i < len(want); i++ {
		if want[i] >= 0 && want[i] != have[i] {
			return invalid("Shape mismatch: expected values dim %d to be %d, got %d", i, want[i], have[i])
		}
	}
	return nil
}

// checkGiven compares the shape that a gradient has as an input with that of the accumulator.
func checkGiven(want []int64, shape *tensor.Tensor) error {
	given, err := tensor.Values[int64](shape)
	if err != nil {
		return err
	}
	if len(want) > len(given) {
		return invalid("Shape mismatch: expected shape rank at least %d, got %d", len(want), len(given))
	}
	for i, d := range want {
		if d >= 0 && d != given[i] {
			return invalid("Shape mismatch: expected shape dim %d to be %d, got %d", i, d, given[i])
		}
	}
	return nil
}

// begin makes the sum of the first gradient.
func (s *sparseSum) begin(c *graph.Context, indices, values *tensor.Tensor) (err error) {
	var next sparseSum
	defer func() {
		if err != nil {
			next.release()
		}
	}()
	if next.indices, err = indices.Clone(c.Step.Allocator); err != nil {
		return err
	}
	if next.values, err = values.Clone(c.Step.Allocator); err != nil {
		return err
	}
	var counts []int32
	if next.counts, counts, err = allocate[int32](c, indices.Shape()); err != nil {
		return err
	}
	for i := range counts {
		counts[i] = 1
	}
	s.values, s.indices, s.counts = next.values, next.indices, next.counts
	return nil
}

// merge returns the sum with a gradient: the rows of both in the order of their indices, as far as they have one.
func (s *sparseSum) merge(c *graph.Context, index []int64, values *tensor.Tensor) (next *sparseSum, err error) {
	have, err := tensor.Values[int64](s.indices)
	if err != nil {
		return nil, err
	}
	had, err := tensor.Values[int32](s.counts)
	if err != nil {
		return nil, err
	}
	rows := 0
	mergeRows(have, index, func(int, int) { rows++ })
	dims := s.values.Shape().Dims()
	dims[0] = int64(rows)
	shape, err := newShape(dims)
	if err != nil {
		return nil, err
	}
	next = &sparseSum{of: s.of}
	defer func() {
		if err != nil {
			next.release()
		}
	}()
	var indices []int64
	var counts []int32
	if next.values, err = c.Allocate(s.of.dtype, shape); err != nil {
		return nil, err
	}
	if next.indices, indices, err = allocate[int64](c, tensor.Vector(rows)); err != nil {
		return nil, err
	}
	if next.counts, counts, err = allocate[int32](c, tensor.Vector(rows)); err != nil {
		return nil, err
	}
	add, err := vectorFunc("Add", s.of.dtype)
	if err != nil {
		return nil, err
	}
	row := 0
	mergeRows(have, index, func(i, j int) {
		switch {
		case err != nil:
		case j < 0:
			indices[row], counts[row] = have[i], had[i]
			err = copyRow(next.values, row, s.values, i)
		case i < 0:
			indices[row], counts[row] = index[j], 1
			err = copyRow(next.values, row, values, j)
		default:
			indices[row], counts[row] = have[i], had[i]+1
			err = addRows(add, next.values, row, values, j, s.values, i)
		}
		row++
	})
	return next, err
}

// mergeRows calls f for each row of the sum of two gradients with the rows that it comes from, −1 for none.
func mergeRows(a, b []int64, f func(i, j int)) {
	i, j := 0, 0
	for i < len(a) && j < len(b) {
		switch {
		case a[i] < b[j]:
			f(i, -1)
			i++
		case a[i] > b[j]:
			f(-1, j)
			j++
		default:
			f(i, j)
			i, j = i+1, j+1
		}
	}
	for ; i < len(a); i++ {
		f(i, -1)
	}
	for ; j < len(b); j++ {
		f(-1, j)
	}
}

// copyRow copies row j of a tensor to row i of another one with as large rows.
func copyRow(to *tensor.Tensor, i int, from *tensor.Tensor, j int) error {
	src, dst := from.Bytes(), to.Bytes()
	size := len(dst) / int(to.Shape().Dim(0))
	copy(dst[i*size:(i+1)*size], src[j*size:])
	return nil
}

// addRows sets row i of a tensor to the sum of rows of two others.
func addRows(add func(z, x, y *tensor.Tensor) error, to *tensor.Tensor, i int, a *tensor.Tensor, j int, b *tensor.Tensor, k int) error {
	var rows [3]*tensor.Tensor
	for n, r := range []struct {
		t *tensor.Tensor
		i int
	}{{to, i}, {a, j}, {b, k}} {
		t, err := r.t.Index(int64(r.i))
		if err != nil {
			return err
		}
		defer t.Release()
		rows[n] = t
	}
	return add(rows[0], rows[1], rows[2])
}

func (s *sparseSum) output(c *graph.Context, _ int, mean bool) error {
	dims := s.values.Shape().Dims()
	shape, v, err := allocate[int64](c, tensor.Vector(len(dims)))
	if err != nil {
		return err
	}
	copy(v, dims)
	if v[0] = -1; len(s.of.shape.dims) > 0 {
		v[0] = s.of.shape.dims[0]
	}
	if mean {
		counts, err := tensor.Values[int32](s.counts)
		if err != nil {
			shape.Release()
			return err
		}
		divideRows(s.values, func(row int) int { return int(counts[row]) }, len(counts))
	}
	c.Set(0, s.indices)
	c.Set(1, s.values)
	c.Set(2, shape)
	s.counts.Release()
	s.values, s.indices, s.counts = nil, nil, nil
	return nil
}

func (s *sparseSum) release() {
	for _, t := range []*tensor.Tensor{s.values, s.indices, s.counts} {
		if t != nil {
			t.Release()
		}
	}
	s.values, s.indices, s.counts = nil, nil, nil
}
