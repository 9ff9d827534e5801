package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// sparseOps are the gradients of sums of rows, and products with a sparse matrix.
func sparseOps() []entry {
	const index = `; Tidx: index = int32; Tsegmentids: index = int32`
	var entries []entry
	for _, op := range []string{"Sum", "Mean", "SqrtN"} {
		types := "float_type"
		if op == "Sum" {
			types = "real"
		}
		entries = append(entries,
			entry{`SparseSegment` + op + `WithNumSegments(data: T, indices: Tidx, segment_ids: Tsegmentids, num_segments: Tnumsegments) -> ` +
				`(output: T); T: ` + types + `; Tidx: index = int32; Tnumsegments: index = int32; Tsegmentids: index = int32; ` +
				`sparse_gradient: bool = false`, byFloat("T", sparseSegment[float32](op), sparseSegment[float64](op))},
			entry{`SparseSegment` + op + `Grad(grad: T, indices: Tidx, segment_ids: Tsegmentids, output_dim0: int32) -> (output: T); ` +
				`T: float_type` + index, byFloat("T", segmentGradient[float32](op), segmentGradient[float64](op))},
		)
	}
	return append(entries, entry{`SparseTensorDenseMatMul(a_indices: Tindices, a_values: T, a_shape: int64, b: T) -> (product: T); ` +
		`T: type; Tindices: index = int64; adjoint_a: bool = false; adjoint_b: bool = false`, newSparseMatMul})
}

// segmentGradient adds to each row that input 1 names the gradient of its segment, as a part of the segment's rows.
func segmentGradient[T float](op string) graph.KernelFunc {
	return func(c *graph.Context) error {
		g, err := inputOf[T](c, 0)
		if err != nil {
			return err
		}
		index, err := intsOf(c, 1)
		if err != nil {
			return err
		}
		ids, err := intsOf(c, 2)
		if err != nil {
			return err
		}
		rows, err := intOf(c, 3)
		if err != nil {
			return err
		}
		gs := c.Input(0).Shape()
		switch {
		case c.Input(1).Shape().Rank() != 1:
			return invalid("indices should be a vector.")
		case c.Input(2).Shape().Rank() != 1:
			return invalid("segment_ids should be a vector.")
		case len(ids) != len(index):
			return invalid("segment_ids and indices should have same size.")
		case gs.Rank() == 0:
			return invalid("Shape must be at least rank 1")
		case rows < 0:
			return invalid("Expected a non-negative size, got %d", rows)
		}
		counts, err := countSegments(c, ids, gs.Dim(0))
		if err != nil {
			return err
		}
		shape, err := newShape(append([]int64{rows}, gs.Dims()[1:]...))
		if err != nil {
			return err
		}
		out, err := setOutput[T](c, 0, shape)
		if err != nil {
			return err
		}
		clear(out)
		width := int(product64(gs.Dims()[1:]))
		for i, row := range index {
			if row < 0 || row >= rows {
				return invalid("Index %d out of range [0, %d).", row, rows)
			}
			part := 1.0
			switch op {
			case "Mean":
				part = 1 / float64(counts[ids[i]])
			case "SqrtN":
				part = 1 / sqrt(float64(counts[ids[i]]))
			}
			dst, src := out[int(row)*width:][:width], g[int(ids[i])*width:][:width]
			for j, v := range src {
				dst[j] += T(v * T(part)) //nolint:unconvert // it prevents a fused product and sum
			}
		}
		return nil
	}
}

// countSegments returns how many elements each of n segments has.
func countSegments(c *graph.Context, ids []int64, n int64) ([]int64, error) {
	if len(ids) == 0 {
		return nil, nil
	}
	if ids[len(ids)-1] >= n {
		return nil, invalid("Invalid number of segments")
	}
	if err := c.Scratch(8 * n); err != nil {
		return nil, err
	}
	counts := make([]int64, n)
	for _, id := range ids {
		if id < 0 || id >= n {
			return nil, invalid("Segment id %d out of range [0, %d).", id, n)
		}
		counts[id]++
	}
	return counts, nil
}

func newSparseMatMul(n *graph.Node, _ *State) (graph.Kernel, error) {
	switch n.Type("T") {
	case tensor.Int32:
		return sparseMatMul[int32](n), nil
	case tensor.Float32:
		return sparseMatMul[float32](n), nil
	case tensor.Float64:
		return sparseMatMul[float64](n), nil
	}
	return nil, noType("T", n.Type("T"))
}

// sparseMatMul multiplies a matrix of which coordinates and values are given with a dense one.
func sparseMatMul[T ordered](n *graph.Node) graph.Kernel {
	adjointA, adjointB := n.Bool("adjoint_a"), n.Bool("adjoint_b")
	return graph.KernelFunc(func(c *graph.Context) error {
		at, err := intsOf(c, 0)
		if err != nil {
			return err
		}
		values, err := inputOf[T](c, 1)
		if err != nil {
			return err
		}
		as, err := intsOf(c, 2)
		if err != nil {
			return err
		}
		b, err := inputOf[T](c, 3)
		if err != nil {
			return err
		}
		if err := checkSparseMatrix(c, as); err != nil {
			return err
		}
		bs := c.Input(3).Shape()
		rows, inner, innerB, columns := as[0], as[1], bs.Dim(0), bs.Dim(1)
		if adjointA {
			rows, inner = inner, rows
		}
		if adjointB {
			innerB, columns = columns, innerB
		}
		if inner != innerB {
			return invalid("Cannot multiply A and B because inner dimension does not match: %d vs. %d.  Did you forget a transpose?  "+
				"Dimensions of A: [%d, %d).  Dimensions of B: %s", inner, innerB, as[0], as[1], bs)
		}
		shape, err := newShape([]int64{rows, columns})
		if err != nil {
			return err
		}
		out, err := setOutput[T](c, 0, shape)
		if err != nil {
			return err
		}
		clear(out)
		first, second := 0, 1
		if adjointA {
			first, second = 1, 0
		}
		for i, v := range values {
			m, k := at[2*i+first], at[2*i+second]
			if k < 0 || k >= inner {
				return invalid("k (%d) from index[%d,%d] out of bounds (>=%d)", k, i, second, inner)
			}
			if m < 0 || m >= rows {
				return invalid("m (%d) from index[%d,%d] out of bounds (>=%d)", m, i, first, rows)
			}
			dst := out[m*columns:][:columns]
			for j := range dst {
				from := k*columns + int64(j)
				if adjointB {
					from = int64(j)*inner + k
				}
				dst[j] += T(v * b[from]) //nolint:unconvert // it prevents a fused product and sum
			}
		}
		return nil
	})
}

// checkSparseMatrix checks the shapes of the sparse matrix in the inputs 0 to 2, and that of the dense one in input 3.
func checkSparseMatrix(c *graph.Context, as []int64) error {
	is, vs := c.Input(0).Shape(), c.Input(1).Shape()
	switch {
	case c.Input(3).Shape().Rank() != 2:
		return invalid("Tensor 'b' is not a matrix")
	case c.Input(2).Shape().Rank() != 1:
		return invalid("Tensor 'a_shape' is not a vector")
	case len(as) != 2:
		return invalid("Tensor 'a_shape' must have 2 elements")
	case vs.Rank() != 1:
		return invalid("Tensor 'a_values' is not a vector")
	case is.Rank() != 2:
		return invalid("Tensor 'a_indices' is not a matrix")
	case is.Dim(0) != vs.Dim(0):
		return invalid("Number of rows of a_indices does not match number of entries in a_values")
	case is.Dim(1) != 2:
		return invalid("Number of columns of a_indices does not match number of entries in a_shape")
	case as[0] < 0 || as[1] < 0:
		return invalid("Tensor 'a_shape' must not have negative dimensions, but is %d", as)
	}
	return nil
}
