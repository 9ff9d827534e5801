package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
)

// broadcast is how the elements of two tensors meet: TensorFlow's rules, which are numpy's. Neighbour
// dimensions that both tensors have, or that the same one lacks, are one.
type broadcast struct {
	shape tensor.Shape // of the result
	dims  []int64      // of the result, joined
	x, y  []int64      // the strides of both in elements; 0 where the tensor repeats
}

// newBroadcast returns how shapes x and y are broadcast; InvalidArgument if they do not fit.
func newBroadcast(x, y tensor.Shape) (*broadcast, error) {
	rank := max(x.Rank(), y.Rank())
	b := &broadcast{}
	full := make([]int64, rank)
	lastX, lastY := false, false // whether x and y repeat in the dimension before
	for i := range rank {
		dx, dy := dimFrom(x, i-rank), dimFrom(y, i-rank)
		d := dx
		switch {
		case dx == 1:
			d = dy
		case dy != 1 && dx != dy:
			return nil, invalid("Incompatible shapes: %s vs. %s", x, y)
		}
		if full[i] = d; d == 1 {
			continue
		}
		rx, ry := dx == 1, dy == 1
		if n := len(b.dims); n > 0 && rx == lastX && ry == lastY {
			b.dims[n-1] *= d
		} else {
			b.dims = append(b.dims, d)
			b.x, b.y = append(b.x, repeats(rx)), append(b.y, repeats(ry))
		}
		lastX, lastY = rx, ry
	}
	var err error
	if b.shape, err = newShape(full); err != nil {
		return nil, err
	}
	if len(b.dims) == 0 {
		b.dims, b.x, b.y = []int64{1}, []int64{0}, []int64{0}
	}
	sx, sy := int64(1), int64(1)
	for i := len(b.dims) - 1; i >= 0; i-- {
		sx, sy = stride(&b.x[i], sx, b.dims[i]), stride(&b.y[i], sy, b.dims[i])
	}
	return b, nil
}

func repeats(r bool) int64 {
	if r {
		return 0
	}
	return 1
}

// stride replaces the mark of a dimension by its stride, and returns that of the next outer one.
func stride(s *int64, next, dim int64) int64 {
	if *s == 0 {
		return next
	}
	*s = next
	return next * dim
}

// dimFrom returns the extent of dimension i, counted from the end (−1 is the last); 1 if there is none.
func dimFrom(s tensor.Shape, i int) int64 {
	if i += s.Rank(); i >= 0 {
		return s.Dim(i)
	}
	return 1
}

// rows calls f for each run of the innermost dimension, with the offsets of its first elements. n is
// the length of the run; the strides in it are those of the last dimension. Runs are computed in
// parallel.
func (b *broadcast) rows(f func(z, x, y, n int64)) {
	last := len(b.dims) - 1
	n, rows := b.dims[last], int64(1)
	for _, d := range b.dims[:last] {
		rows *= d
	}
	parallelCost(int(rows), int(min(n, grain)), func(from, to int) {
		index := make([]int64, last)
		x, y := int64(0), int64(0)
		for i, r := last-1, int64(from); i >= 0; i-- {
			index[i] = r % b.dims[i]
			r /= b.dims[i]
			x, y = x+index[i]*b.x[i], y+index[i]*b.y[i]
		}
		for row := int64(from); row < int64(to); row++ {
			f(row*n, x, y, n)
			for i := last - 1; i >= 0; i-- {
				x, y = x+b.x[i], y+b.y[i]
				if index[i]++; index[i] < b.dims[i] {
					break
				}
				x, y, index[i] = x-b.dims[i]*b.x[i], y-b.dims[i]*b.y[i], 0
			}
		}
	})
}
