package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// arrayOps arrange the elements of one tensor.
func arrayOps() []entry {
	return []entry{
		{`Transpose(x: T, perm: Tperm) -> (y: T); T: type; Tperm: index = int32`, moving("T", transposeKernel)},
		{`BroadcastTo(input: T, shape: Tidx) -> (output: T); T: type; Tidx: index = int32`, moving("T", broadcastTo)},
		{`Tile(input: T, multiples: Tmultiples) -> (output: T); T: type; Tmultiples: index = int32`, moving("T", tile)},
		{`Pad(input: T, paddings: Tpaddings) -> (output: T); T: type; Tpaddings: index = int32`, moving("T", pad)},
		{`PadV2(input: T, paddings: Tpaddings, constant_values: T) -> (output: T); T: type; Tpaddings: index = int32`,
			moving("T", pad)},
		{`ReverseV2(tensor: T, axis: Tidx) -> (output: T); Tidx: index = int32; T: {uint8, int8, uint16, int16, int32, uint32, int64, ` +
			`uint64, bool, bfloat16, half, float, double, complex64, complex128, string}`, moving("T", reverse)},
		{`OneHot(indices: TI, depth: int32, on_value: T, off_value: T) -> (output: T); axis: int = -1; T: type; ` +
			`TI: {uint8, int8, int32, int64} = int64`, newOneHot},
		{`Range(start: Tidx, limit: Tidx, delta: Tidx) -> (output: Tidx); Tidx: {bfloat16, half, float, double, int8, int16, int32, ` +
			`int64, uint16, uint32, uint64} = int32`, newRange},
		{`LinSpace(start: T, stop: T, num: Tidx) -> (output: T); T: float_type; Tidx: index = int32`, smallFloats(newLinSpace)},
	}
}

// moving returns the NewFunc of a kernel that moves elements of any type with plain memory, and
// strings.
func moving(attr string, f graph.KernelFunc) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		if d := n.Type(attr); !movable(d) {
			return nil, noType(attr, d)
		}
		return f, nil
	}
}

// gatherElements sets output 0 to a tensor of the given shape, whose elements w finds in input 0. n
// elements at a time are neighbours in both, and w steps over such runs.
func gatherElements(c *graph.Context, shape tensor.Shape, w *walker, run int64) error {
	t := c.Input(0)
	m, err := newMover(c, 0, t.DType(), shape)
	if err != nil || shape.Elements() == 0 {
		return m.done(err)
	}
	for at := int64(0); at < shape.Elements(); at += run {
		m.copy(at, t, w.offset, run)
		w.next()
	}
	return m.done(nil)
}

// stridesOf returns the distance of neighbours in each dimension, in elements.
func stridesOf(s tensor.Shape) []int64 {
	strides, stride := make([]int64, s.Rank()), int64(1)
	for i := s.Rank() - 1; i >= 0; i-- {
		strides[i] = stride
		stride *= s.Dim(i)
	}
	return strides
}

func transposeKernel(c *graph.Context) error {
	perm, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	in := c.Input(0).Shape()
	if len(perm) != in.Rank() {
		return invalid("transpose expects a vector of size %d. But input(1) is a vector of size %d", in.Rank(), len(perm))
	}
	strides := stridesOf(in)
	seen := make([]bool, in.Rank())
	w := &walker{index: make([]int64, in.Rank())}
	for i, p := range perm {
		if p < 0 {
			p += int64(in.Rank())
		}
		if p < 0 || p >= int64(in.Rank()) || seen[p] {
			return invalid("perm %v is not a permutation of the %d dimensions: see element %d", perm, in.Rank(), i)
		}
		seen[p] = true
		w.dims, w.strides = append(w.dims, in.Dim(int(p))), append(w.strides, strides[p])
	}
	shape, err := newShape(w.dims)
	if err != nil {
		return err
	}
	// Dimensions at the end that stay where they are move as one block.
	run, last := int64(1), len(w.dims)
	for last > 0 && shape.Elements() > 0 && w.strides[last-1] == run {
		last--
		run *= w.dims[last]
	}
	w.dims, w.strides, w.index = w.dims[:last], w.strides[:last], w.index[:last]
	return gatherElements(c, shape, w, run)
}

func broadcastTo(c *graph.Context) error {
	shape, err := shapeOf(c, 1)
	if err != nil {
		return err
	}
	in := c.Input(0).Shape()
	b, err := newBroadcast(in, shape)
	if err != nil || !b.shape.Equal(shape) {
		return invalid("Incompatible shapes: %s vs. %s", in, shape)
	}
	return gatherElements(c, shape, newWalker(in, shape), 1)
}

func tile(c *graph.Context) error {
	multiples, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	in := c.Input(0).Shape()
	if len(multiples) != in.Rank() {
		return invalid("Expected multiples argument to be a vector of length %d but got length %d", in.Rank(), len(multiples))
	}
	// Each dimension becomes two: the repetition, which moves by nothing, and the dimension.
	strides, w := stridesOf(in), &walker{}
	var dims []int64
	for i, m := range multiples {
		if m < 0 {
			return invalid("Expected multiples[%d] >= 0, but got %d", i, m)
		}
		d, err := newShape([]int64{m, in.Dim(i)})
		if err != nil {
			return err
		}
		dims = append(dims, d.Elements())
		w.dims, w.strides = append(w.dims, m, in.Dim(i)), append(w.strides, 0, strides[i])
	}
	w.index = make([]int64, len(w.dims))
	shape, err := newShape(dims)
	if err != nil {
		return err
	}
	return gatherElements(c, shape, w, 1)
}

func reverse(c *graph.Context) error {
	axes, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	in := c.Input(0).Shape()
	w := &walker{dims: in.Dims(), strides: stridesOf(in), index: make([]int64, in.Rank())}
	seen := make([]bool, in.Rank())
	for _, a := range axes {
		axis, err := axisIn(a, in.Rank(), "axis")
		if err != nil {
			return err
		}
		if seen[axis] {
			return invalid("axis %d specified more than once.", axis)
		}
		seen[axis] = true
		w.offset += w.strides[axis] * (w.dims[axis] - 1)
		w.strides[axis] = -w.strides[axis]
	}
	return gatherElements(c, in, w, 1)
}

// pad sets the elements around the input to zero, or to input 2.
func pad(c *graph.Context) error {
	paddings, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	in := c.Input(0).Shape()
	if len(paddings) != 2*in.Rank() {
		return invalid("paddings must have a row of two for each of %d dimensions, but has the shape %s", in.Rank(), c.Input(1).Shape())
	}
	dims := make([]int64, in.Rank())
	for i := range dims {
		before, after := paddings[2*i], paddings[2*i+1]
		total, err := sumOf(before, in.Dim(i), after)
		if err != nil {
			return err
		}
		dims[i] = total
	}
	shape, err := newShape(dims)
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, c.Input(0).DType(), shape)
	if err != nil {
		return err
	}
	m.clear()
	if len(c.Inputs) > 2 {
		if value := c.Input(2); value.Shape().Elements() != 1 {
			return invalid("constant_values must be a scalar, but has the shape %s", value.Shape())
		}
		for i := range shape.Elements() {
			m.copy(i, c.Input(2), 0, 1)
		}
	}
	outStrides := stridesOf(shape)
	w := &walker{dims: in.Dims(), strides: outStrides, index: make([]int64, in.Rank())}
	for i := range in.Rank() {
		w.offset += paddings[2*i] * outStrides[i]
	}
	for i := range in.Elements() {
		m.copy(w.offset, c.Input(0), i, 1)
		w.next()
	}
	return m.done(nil)
}

// sumOf adds extents, none of which may be negative.
func sumOf(values ...int64) (int64, error) {
	sum := int64(0)
	for _, v := range values {
		if sum += v; v < 0 || sum < 0 {
			return 0, invalid("the extents %v must not be negative, and their sum must be below 2⁶³", values)
		}
	}
	return sum, nil
}

func newOneHot(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("T"); !movable(d) {
		return nil, noType("T", d)
	}
	if d := n.Type("TI"); d != tensor.Int32 && d != tensor.Int64 {
		return nil, noType("TI", d)
	}
	return graph.KernelFunc(oneHot), nil
}

func oneHot(c *graph.Context) error {
	indices, err := intsOf(c, 0)
	if err != nil {
		return err
	}
	depth, err := intOf(c, 1)
	if err != nil {
		return err
	}
	on, off := c.Input(2), c.Input(3)
	if depth < 0 || on.Shape().Elements() != 1 || off.Shape().Elements() != 1 {
		return invalid("depth must not be negative, and on_value and off_value must be scalars: %d, %s, %s", depth, on.Shape(), off.Shape())
	}
	in := c.Input(0).Shape()
	axis, err := axisIn(c.Node.Int("axis"), in.Rank()+1, "axis")
	if err != nil {
		return err
	}
	dims := in.Dims()
	shape, err := newShape(append(append(append([]int64{}, dims[:axis]...), depth), dims[axis:]...))
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, on.DType(), shape)
	if err != nil {
		return err
	}
	for i := range shape.Elements() {
		m.copy(i, off, 0, 1)
	}
	suffix := int64(1)
	for _, d := range dims[axis:] {
		suffix *= d
	}
	for i, v := range indices {
		if v >= 0 && v < depth {
			m.copy((int64(i)/suffix*depth+v)*suffix+int64(i)%suffix, on, 0, 1)
		}
	}
	return m.done(nil)
}

func newRange(n *graph.Node, _ *State) (graph.Kernel, error) {
	switch d := n.Type("Tidx"); d {
	case tensor.Int32:
		return graph.KernelFunc(rangeKernel[int32]), nil
	case tensor.Int64:
		return graph.KernelFunc(rangeKernel[int64]), nil
	case tensor.Float32:
		return graph.KernelFunc(rangeKernel[float32]), nil
	case tensor.Float64:
		return graph.KernelFunc(rangeKernel[float64]), nil
	default:
		return nil, noType("Tidx", d)
	}
}

func rangeKernel[T int32 | int64 | float32 | float64](c *graph.Context) error {
	var v [3]T
	for i := range v {
		var err error
		if v[i], err = scalarOf[T](c, i); err != nil {
			return err
		}
	}
	start, limit, delta := v[0], v[1], v[2]
	if delta == 0 || delta != delta {
		return invalid("Requires delta != 0: %v", delta)
	}
	if (delta > 0 && start > limit) || (delta < 0 && start < limit) {
		return invalid("Requires start <= limit when delta > 0, and start >= limit when delta < 0: %v/%v", start, limit)
	}
	n, ok := rangeSize(start, limit, delta)
	if !ok {
		return invalid("Requires ((limit - start) / delta) <= 9223372036854775807")
	}
	out, err := setOutput[T](c, 0, tensor.Vector(int(n)))
	if err != nil {
		return err
	}
	for i, x := 0, start; i < len(out); i, x = i+1, x+delta {
		out[i] = x
	}
	return nil
}

// rangeSize returns how many elements a Range has, and false when they are too many. As in TensorFlow
// floats are computed in their own type, and integers without rounding.
func rangeSize[T int32 | int64 | float32 | float64](start, limit, delta T) (int64, bool) {
	if half := T(1) / 2; half != 0 {
		size := math.Ceil(math.Abs(float64((limit - start) / delta)))
		return int64(size), size < 1<<62
	}
	distance, step := uint64(limit)-uint64(start), uint64(delta) // limit−start may exceed T
	if delta < 0 {
		distance, step = -distance, -step
	}
	n := distance / step
	if distance%step != 0 {
		n++
	}
	return int64(n), n < 1<<62
}

func newLinSpace(n *graph.Node, _ *State) (graph.Kernel, error) {
	if n.Type("T") == tensor.Float64 {
		return graph.KernelFunc(linSpace[float64]), nil
	}
	return graph.KernelFunc(linSpace[float32]), nil
}

func linSpace[T float](c *graph.Context) error {
	start, err := scalarOf[T](c, 0)
	if err != nil {
		return err
	}
	stop, err := scalarOf[T](c, 1)
	if err != nil {
		return err
	}
	num, err := intOf(c, 2)
	if err != nil {
		return err
	}
	if num <= 0 || num > 1<<40 {
		return invalid("Requires num > 0: %d", num)
	}
	out, err := setOutput[T](c, 0, tensor.Vector(int(num)))
	if err != nil {
		return err
	}
	step := T(0)
	if num > 1 {
		step = (stop - start) / T(num-1)
	}
	for i := range out {
		out[i] = start + step*T(i)
	}
	if num > 1 {
		out[num-1] = stop
	}
	return nil
}
