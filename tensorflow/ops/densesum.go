package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// denseSum is the sum of dense gradients.
type denseSum struct {
	of *accumulator
	t  *tensor.Tensor // nil without gradients
}

func (s *denseSum) inputs() []tensor.DType  { return []tensor.DType{s.of.dtype} }
func (s *denseSum) outputs() []tensor.DType { return []tensor.DType{s.of.dtype} }

func (s *denseSum) add(c *graph.Context, count int) (err error) {
	grad := c.Input(2)
	if count > 0 && !s.t.Shape().Equal(grad.Shape()) {
		return invalid("Shape mismatch: expected %s, got %s", s.t.Shape(), grad.Shape())
	}
	if !s.of.shape.fits(grad.Shape()) {
		return invalid("Shape mismatch: expected %s, got %s", s.of.shape, grad.Shape())
	}
	if count == 0 {
		s.t, err = grad.Clone(c.Step.Allocator)
		return err
	}
	return addTo(s.t, grad)
}

// addTo adds t to sum, of the same shape.
func addTo(sum, t *tensor.Tensor) error {
	add, err := vectorFunc("Add", sum.DType())
	if err != nil {
		return err
	}
	return add(sum, sum, t)
}

func (s *denseSum) output(c *graph.Context, count int, mean bool) error {
	if mean {
		divideRows(s.t, func(int) int { return count }, 1)
	}
	c.Set(0, s.t)
	s.t = nil
	return nil
}

func (s *denseSum) release() {
	if s.t != nil {
		s.t.Release()
		s.t = nil
	}
}

// divideRows divides each row of a tensor by a number of its own.
func divideRows(t *tensor.Tensor, by func(row int) int, rows int) {
	switch t.DType() {
	case tensor.Float32:
		divide(t, by, rows, func(x float32, n int) float32 { return x / float32(n) })
	case tensor.Float64:
		divide(t, by, rows, func(x float64, n int) float64 { return x / float64(n) })
	case tensor.Float16:
		divide(t, by, rows, func(x tensor.Float16Bits, n int) tensor.Float16Bits {
			return toHalf(fromHalf(x) / fromHalf(toHalf(float32(n))))
		})
	}
}

func divide[T tensor.Element](t *tensor.Tensor, by func(row int) int, rows int, f func(T, int) T) {
	v, err := tensor.Values[T](t)
	if err != nil || rows == 0 {
		return
	}
	size := len(v) / rows
	for row := range rows {
		n := by(row)
		for i, x := range v[row*size : (row+1)*size] {
			v[row*size+i] = f(x, n)
		}
	}
}
