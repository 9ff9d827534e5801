package ops

import (
	"cmp"
	"slices"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// scanOps are sums and products up to each element, and the largest elements.
func scanOps() []entry {
	const scan = `(x: T, axis: Tidx) -> (out: T); exclusive: bool = false; reverse: bool = false; T: number; Tidx: index = int32`
	return []entry{
		{`Cumsum` + scan, newScan("Add", 0)},
		{`Cumprod` + scan, newScan("Mul", 1)},
		{`TopKV2(input: T, k: Tk) -> (values: T, indices: index_type); sorted: bool = true; T: real; ` +
			`Tk: {int16, int32, int64} = int32; index_type: {int16, int32, int64} = int32`, smallFloats(newTopK)},
	}
}

// newScan makes the kernels that combine each element with all before it along one dimension. first is what an
// exclusive one has at the beginning.
func newScan(op string, first int64) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		d := n.Type("T")
		f, err := findRowFunc(op, d)
		if err != nil {
			return nil, err
		}
		cast, err := findCast(tensor.Int64, d)
		if d == tensor.Int64 {
			cast, err = copyBytes, nil
		}
		if err != nil {
			return nil, err
		}
		exclusive, reverse := n.Bool("exclusive"), n.Bool("reverse")
		return graph.KernelFunc(func(c *graph.Context) error {
			x := c.Input(0)
			axis, err := scanAxis(c, x.Shape().Rank())
			if err != nil {
				return err
			}
			out, err := x.Clone(c.Step.Allocator)
			if err != nil {
				return err
			}
			c.Set(0, out)
			if x.Shape().Elements() == 0 {
				return nil
			}
			length, inner := x.Shape().Dim(axis), product64(x.Shape().Dims()[axis+1:])
			combine, err := f(out, out, false)
			if err != nil {
				return err
			}
			place := func(start, i int64) int64 {
				if reverse {
					i = length - 1 - i
				}
				return start + i*inner
			}
			if exclusive {
				if err := shift(c, out, cast, first, place, length, inner); err != nil {
					return err
				}
			}
			for start := int64(0); start < x.Shape().Elements(); start += length * inner {
				for i := int64(1); i < length; i++ {
					combine(place(start, i), place(start, i-1), inner)
				}
			}
			return nil
		}), nil
	}
}

func copyBytes(dst, src *tensor.Tensor) error {
	copy(dst.Bytes(), src.Bytes())
	return nil
}

// scanAxis returns the dimension in input 1.
func scanAxis(c *graph.Context, rank int) (int, error) {
	if s := c.Input(1).Shape(); s.Rank() != 0 {
		return 0, invalid("ScanOp: axis must be a scalar, not %s", s)
	}
	axis, err := intOf(c, 1)
	if err != nil {
		return 0, err
	}
	n := int64(rank)
	if axis < -n || axis >= n {
		return 0, invalid("ScanOp: Expected scan axis in the range [%d, %d), but got %d", -n, n, axis)
	}
	if axis < 0 {
		axis += n
	}
	return int(axis), nil
}

// shift moves the elements of out to the next place along the dimension, and puts first before them.
func shift(c *graph.Context, out *tensor.Tensor, cast castFunc, first int64, place func(start, i int64) int64, length, inner int64) error {
	wide, err := tensor.FromSlice(tensor.Shape{}, []int64{first})
	if err != nil {
		return err
	}
	one, err := c.Allocate(out.DType(), tensor.Shape{})
	if err != nil {
		return err
	}
	defer one.Release()
	if err := cast(one, wide); err != nil {
		return err
	}
	set, err := updateRows(out, one, true)
	if err != nil {
		return err
	}
	size := int64(out.DType().Size())
	row := func(at int64) []byte { return out.Bytes()[at*size:][:inner*size] }
	for start := int64(0); start < out.Shape().Elements(); start += length * inner {
		for i := length - 1; i > 0; i-- {
			copy(row(place(start, i)), row(place(start, i-1)))
		}
		set(place(start, 0), 0, inner)
	}
	return nil
}

func newTopK(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("index_type"); d == tensor.Int16 {
		return nil, noType("index_type", d)
	}
	if d := n.Type("Tk"); d == tensor.Int16 {
		return nil, noType("Tk", d)
	}
	switch d := n.Type("T"); d {
	case tensor.Float32:
		return graph.KernelFunc(topK[float32]), nil
	case tensor.Float64:
		return graph.KernelFunc(topK[float64]), nil
	case tensor.Int8:
		return graph.KernelFunc(topK[int8]), nil
	case tensor.Int16:
		return graph.KernelFunc(topK[int16]), nil
	case tensor.Int32:
		return graph.KernelFunc(topK[int32]), nil
	case tensor.Int64:
		return graph.KernelFunc(topK[int64]), nil
	case tensor.Uint8:
		return graph.KernelFunc(topK[uint8]), nil
	case tensor.Uint16:
		return graph.KernelFunc(topK[uint16]), nil
	case tensor.Uint32:
		return graph.KernelFunc(topK[uint32]), nil
	case tensor.Uint64:
		return graph.KernelFunc(topK[uint64]), nil
	default:
		return nil, noType("T", d)
	}
}

// topK gives the k largest elements of each row, the largest first, and of equal ones the first. Unsorted
// outputs have that order, too.
func topK[T ordered](c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	if s := c.Input(1).Shape(); s.Rank() != 0 {
		return invalid("k must be scalar, got shape %s", s)
	}
	k, err := intOf(c, 1)
	if err != nil {
		return err
	}
	dims := c.Input(0).Shape().Dims()
	switch {
	case k < 0:
		return invalid("Need k >= 0, got %d", k)
	case len(dims) == 0:
		return invalid("input must be >= 1-D, got shape []")
	case dims[len(dims)-1] < k:
		return invalid("input must have at least k columns. Had %d, needed %d", dims[len(dims)-1], k)
	}
	columns := int(dims[len(dims)-1])
	shape, err := newShape(append(slices.Clone(dims[:len(dims)-1]), k))
	if err != nil {
		return err
	}
	out, err := setOutput[T](c, 0, shape)
	if err != nil {
		return err
	}
	if err := c.Scratch(8 * (int64(columns) + shape.Elements())); err != nil {
		return err
	}
	order, index := make([]int, columns), make([]int64, len(out))
	for to := 0; to < len(out); to += int(k) {
		row := x[to/int(k)*columns:][:columns]
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(row[b], row[a]) })
		for i, from := range order[:k] {
			out[to+i], index[to+i] = row[from], int64(from)
		}
	}
	return setInts(c, 1, c.Node.Type("index_type"), shape, index)
}
