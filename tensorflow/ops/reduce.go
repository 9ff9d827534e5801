package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func reduceOps() []entry {
	var entries []entry
	const rest = `(input: T, reduction_indices: Tidx) -> (output: T); keep_dims: bool = false; `
	for _, op := range []string{"Sum", "Mean", "Prod"} {
		entries = append(entries, entry{op + rest + `T: number; Tidx: index = int32`, newReduce(op)})
	}
	for _, op := range []string{"Max", "Min"} {
		entries = append(entries, entry{op + rest + `T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, ` +
			`uint32, uint64, qint8, quint8, qint32, qint16, quint16}; Tidx: index = int32`, newReduce(op)})
	}
	for _, op := range []string{"All", "Any"} {
		entries = append(entries, entry{op + `(input: bool, reduction_indices: Tidx) -> (output: bool); keep_dims: bool = false; ` +
			`Tidx: index = int32`, newReduceBool(op)})
	}
	const arg = `(input: T, dimension: Tidx) -> (output: output_type); T: {float, double, int32, uint8, int16, int8, int64, bfloat16, ` +
		`uint16, half, uint32, uint64, qint8, quint8, qint32, qint16, quint16, bool}; `
	return append(entries,
		entry{`ArgMax` + arg + `Tidx: {int16, int32, int64} = int32; output_type: {int16, uint16, int32, int64} = int64`, newArg(true)},
		entry{`ArgMin` + arg + `Tidx: index = int32; output_type: index = int64`, newArg(false)},
		entry{`L2Loss(t: T) -> (output: T); T: float_type`, newL2Loss},
	)
}

// reduction folds elements of the type T in accumulators of the type A: floats are summed in double.
type reduction[T, A tensor.Element] struct {
	first A
	fold  func(acc A, x T) A
	last  func(acc A, n int64) T // n is how many elements were folded
}

// Compute implements graph.Kernel.
func (r *reduction[T, A]) Compute(c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	axes, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	plan, err := newReducePlan(c.Input(0).Shape(), axes, c.Node.Bool("keep_dims"))
	if err != nil {
		return err
	}
	out, err := setOutput[T](c, 0, plan.shape)
	if err != nil || len(out) == 0 {
		return err
	}
	t, acc, err := allocate[A](c, plan.shape)
	if err != nil {
		return err
	}
	defer t.Release()
	for i := range acc {
		acc[i] = r.first
	}
	if len(x) > 0 {
		r.run(plan, x, acc)
	}
	n := int64(len(x)) / int64(len(out))
	for i, a := range acc {
		out[i] = r.last(a, n)
	}
	return nil
}

func (r *reduction[T, A]) run(plan *reducePlan, x []T, acc []A) {
	n := int(plan.dims[len(plan.dims)-1])
	fold := r.fold
	if plan.inner {
		plan.rows(func(in, out int) {
			a := acc[out]
			for _, v := range x[in : in+n] {
				a = fold(a, v)
			}
			acc[out] = a
		})
		return
	}
	plan.rows(func(in, out int) {
		row, dst := x[in:in+n], acc[out:out+n]
		for i, v := range row {
			dst[i] = fold(dst[i], v)
		}
	})
}

// reducePlan is how a tensor is reduced: neighbour dimensions that are both reduced, or both kept, are
// one.
type reducePlan struct {
	shape   tensor.Shape // of the output
	dims    []int64
	reduced []bool
	inner   bool // the last dimension is reduced
}

func newReducePlan(in tensor.Shape, axes []int64, keep bool) (*reducePlan, error) {
	reduced := make([]bool, in.Rank())
	for _, a := range axes {
		i := a
		if i < 0 {
			i += int64(in.Rank())
		}
		if i < 0 || i >= int64(in.Rank()) {
			return nil, invalid("Invalid reduction dimension (%d for input with %d dimension(s)", a, in.Rank())
		}
		if reduced[i] {
			return nil, invalid("Invalid reduction arguments: Axes contains duplicate dimension: %d", i)
		}
		reduced[i] = true
	}
	p := &reducePlan{}
	var out []int64
	for i, r := range reduced {
		d := in.Dim(i)
		if !r {
			out = append(out, d)
		} else if keep {
			out = append(out, 1)
		}
		if n := len(p.dims); n > 0 && p.reduced[n-1] == r {
			p.dims[n-1] *= d
		} else {
			p.dims, p.reduced = append(p.dims, d), append(p.reduced, r)
		}
	}
	if len(p.dims) == 0 {
		p.dims, p.reduced = []int64{1}, []bool{false}
	}
	p.inner = p.reduced[len(p.reduced)-1]
	var err error
	p.shape, err = newShape(out)
	return p, err
}

// rows calls f for each run of the last dimension, with the offsets of its first element in the input
// and in the output.
func (p *reducePlan) rows(f func(in, out int)) {
	last := len(p.dims) - 1
	strides, stride := make([]int, len(p.dims)), 1
	for i := last; i >= 0; i-- {
		if !p.reduced[i] {
			strides[i] = stride
			stride *= int(p.dims[i])
		}
	}
	index := make([]int64, last)
	for in, out := 0, 0; ; {
		f(in, out)
		in += int(p.dims[last])
		i := last - 1
		for ; i >= 0; i-- {
			out += strides[i]
			if index[i]++; index[i] < p.dims[i] {
				break
			}
			out -= strides[i] * int(p.dims[i])
			index[i] = 0
		}
		if i < 0 {
			return
		}
	}
}

func newReduce(op string) NewFunc {
	return smallFloats(func(n *graph.Node, _ *State) (graph.Kernel, error) {
		var k graph.Kernel
		switch d := n.Type("T"); d {
		case tensor.Float32:
			k = newFold[float32, float64](op, -math.MaxFloat32, math.MaxFloat32)
			if op == "Max" || op == "Min" {
				k = newFold[float32, float32](op, float32(math.Inf(-1)), float32(math.Inf(1)))
			}
		case tensor.Float64:
			k = newFold[float64, float64](op, math.Inf(-1), math.Inf(1))
		case tensor.Int32:
			k = newIntFold[int32, int64](op, math.MinInt32, math.MaxInt32)
		case tensor.Int64:
			k = newFold[int64, int64](op, math.MinInt64, math.MaxInt64)
		case tensor.Int8:
			k = newIntFold[int8, int64](op, math.MinInt8, math.MaxInt8)
		case tensor.Int16:
			k = newIntFold[int16, int64](op, math.MinInt16, math.MaxInt16)
		case tensor.Uint8:
			k = newIntFold[uint8, uint64](op, 0, math.MaxUint8)
		case tensor.Uint16:
			k = newIntFold[uint16, uint64](op, 0, math.MaxUint16)
		case tensor.Uint32:
			k = newIntFold[uint32, uint64](op, 0, math.MaxUint32)
		case tensor.Uint64:
			k = newFold[uint64, uint64](op, 0, math.MaxUint64)
		default:
			return nil, noType("T", d)
		}
		return k, nil
	})
}

// newIntFold is newFold for integers of at most 32 bits. As in TensorFlow a mean is summed and divided
// in W, since neither the sum nor the count need fit T. Sums and products wrap around in T.
func newIntFold[T, W integer](op string, lowest, highest T) graph.Kernel {
	if op == "Mean" {
		return newFold[T, W](op, 0, 0)
	}
	return newFold[T, T](op, lowest, highest)
}

// newFold returns the kernel of a reduction. lowest and highest are the ends of the type.
func newFold[T, A ordered](op string, lowest, highest A) graph.Kernel {
	same := func(a A, _ int64) T { return T(a) }
	switch op {
	case "Sum":
		return &reduction[T, A]{0, func(a A, x T) A { return a + A(x) }, same}
	case "Mean":
		return &reduction[T, A]{0, func(a A, x T) A { return a + A(x) }, func(a A, n int64) T {
			if n == 0 && A(1)/A(2) == 0 {
				return 0
			}
			return T(a / A(n))
		}}
	case "Prod":
		return &reduction[T, A]{1, func(a A, x T) A { return a * A(x) }, same}
	case "Max":
		return &reduction[T, A]{lowest, func(a A, x T) A { return max(a, A(x)) }, same}
	}
	return &reduction[T, A]{highest, func(a A, x T) A { return min(a, A(x)) }, same}
}

func newReduceBool(op string) NewFunc {
	all := op == "All"
	return always((&reduction[bool, bool]{
		all, func(a, x bool) bool { return (a && x) || (!all && (a || x)) }, func(a bool, _ int64) bool { return a },
	}).Compute)
}

func newL2Loss(n *graph.Node, s *State) (graph.Kernel, error) {
	return smallFloats(func(n *graph.Node, _ *State) (graph.Kernel, error) {
		if n.Type("T") == tensor.Float64 {
			return graph.KernelFunc(l2Loss[float64]), nil
		}
		return graph.KernelFunc(l2Loss[float32]), nil
	})(n, s)
}

func l2Loss[T float](c *graph.Context) error {
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	sum := 0.0
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	t, err := scalarTensor(c, T(sum/2))
	if err == nil {
		c.Set(0, t)
	}
	return err
}

// newArg makes the kernels of ArgMax and ArgMin: the index of the first of the largest elements.
func newArg(largest bool) NewFunc {
	return smallFloats(func(n *graph.Node, _ *State) (graph.Kernel, error) {
		out := n.Type("output_type")
		if out != tensor.Int32 && out != tensor.Int64 {
			return nil, noType("output_type", out)
		}
		switch d := n.Type("T"); d {
		case tensor.Float32:
			return argKernel[float32](largest, out), nil
		case tensor.Float64:
			return argKernel[float64](largest, out), nil
		case tensor.Int32:
			return argKernel[int32](largest, out), nil
		case tensor.Int64:
			return argKernel[int64](largest, out), nil
		case tensor.Uint8:
			return argKernel[uint8](largest, out), nil
		case tensor.Int8:
			return argKernel[int8](largest, out), nil
		default:
			return nil, noType("T", d)
		}
	})
}

func argKernel[T ordered](largest bool, dtype tensor.DType) graph.Kernel {
	return graph.KernelFunc(func(c *graph.Context) error {
		x, err := inputOf[T](c, 0)
		if err != nil {
			return err
		}
		shape := c.Input(0).Shape()
		axis, err := axisOf(c, 1, shape.Rank())
		if err != nil {
			return err
		}
		n := int(shape.Dim(axis))
		if n == 0 {
			return invalid("Reduction axis %d is empty in shape %s", axis, shape)
		}
		dims := shape.Dims()
		kept, err := newShape(append(dims[:axis:axis], dims[axis+1:]...))
		if err != nil {
			return err
		}
		if err := c.Scratch(8 * kept.Elements()); err != nil {
			return err
		}
		index := make([]int64, kept.Elements())
		width := 1
		for _, d := range dims[axis+1:] {
			width *= int(d)
		}
		for i := range index {
			base := i/width*width*n + i%width
			best := x[base]
			for j := 1; j < n; j++ {
				if v := x[base+j*width]; (largest && v > best) || (!largest && v < best) {
					best, index[i] = v, int64(j)
				}
			}
		}
		return setInts(c, 0, dtype, kept, index)
	})
}

// axisOf returns the dimension that input i names, which counts from the end when it is negative.
func axisOf(c *graph.Context, i, rank int) (int, error) {
	a, err := intOf(c, i)
	if err != nil {
		return 0, err
	}
	return axisIn(a, rank, argName(c, i))
}

func axisIn(a int64, rank int, name string) (int, error) {
	n := int64(rank)
	if a < -n || a >= n {
		return 0, invalid("%s must be in the range [%d, %d), but is %d", name, -n, n, a)
	}
	if a < 0 {
		a += n
	}
	return int(a), nil
}
