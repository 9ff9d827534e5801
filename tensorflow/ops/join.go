package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// joinOps join tensors along a dimension, and take them apart.
func joinOps() []entry {
	return []entry{
		{`Concat(concat_dim: int32, values: N*T) -> (output: T); N: int >= 2; T: type`,
			moving("T", func(c *graph.Context) error { return concat(c, 0, 1) })},
		{`ConcatV2(values: N*T, axis: Tidx) -> (output: T); N: int >= 2; T: type; Tidx: index = int32`,
			moving("T", func(c *graph.Context) error { return concat(c, len(c.Inputs)-1, 0) })},
		{`Pack(values: N*T) -> (output: T); N: int >= 1; T: type; axis: int = 0`, moving("T", pack)},
		{`Unpack(value: T) -> (output: num*T); num: int >= 0; T: type; axis: int = 0`, moving("T", unpack)},
		{`Split(split_dim: int32, value: T) -> (output: num_split*T); num_split: int >= 1; T: type`, moving("T", splitKernel)},
		{`SplitV(value: T, size_splits: Tlen, split_dim: int32) -> (output: num_split*T); num_split: int >= 1; T: type; ` +
			`Tlen: {int8, int32, int64} = int64`, newSplitV},
	}
}

// product64 multiplies extents of a shape.
func product64(dims []int64) int64 {
	n := int64(1)
	for _, d := range dims {
		n *= d
	}
	return n
}

// concat joins the inputs from first on along the dimension that input axis names.
func concat(c *graph.Context, axis, first int) error {
	values := c.Inputs[first : first+len(c.Inputs)-1]
	shape := values[0].Tensor.Shape()
	if shape.Rank() == 0 {
		return invalid("ConcatOp : Can't concatenate scalars (use tf.stack instead)")
	}
	at, err := intOf(c, axis)
	if err != nil {
		return err
	}
	dim := int(at)
	if n := int64(shape.Rank()); at < -n || at >= n {
		return invalid("ConcatOp : Expected concatenating dimensions in the range [%d, %d), but got %d", -n, n, at)
	} else if at < 0 {
		dim += int(n)
	}
	dims := shape.Dims()
	for i, v := range values[1:] {
		s := v.Tensor.Shape()
		if s.Rank() != shape.Rank() {
			return invalid("ConcatOp : Ranks of all input tensors should match: shape[0] = %s vs. shape[%d] = %s", shape, i+1, s)
		}
		for j := range s.Rank() {
			if j != dim && s.Dim(j) != shape.Dim(j) {
				return invalid("ConcatOp : Dimension %d in both shapes must be equal: shape[0] = %s vs. shape[%d] = %s", j, shape, i+1, s)
			}
		}
		if dims[dim], err = sumOf(dims[dim], s.Dim(dim)); err != nil {
			return err
		}
	}
	out, err := newShape(dims)
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, values[0].Tensor.DType(), out)
	if err != nil || out.Elements() == 0 {
		return m.done(err)
	}
	outer, inner := product64(dims[:dim]), product64(dims[dim+1:])
	at = 0
	for i := range outer {
		for _, v := range values {
			n := v.Tensor.Shape().Dim(dim) * inner
			m.copy(at, v.Tensor, i*n, n)
			at += n
		}
	}
	return m.done(nil)
}

func pack(c *graph.Context) error {
	shape := c.Input(0).Shape()
	axis, err := axisIn(c.Node.Int("axis"), shape.Rank()+1, "axis")
	if err != nil {
		return err
	}
	for i := range c.Inputs {
		if s := c.Input(i).Shape(); !s.Equal(shape) {
			return invalid("Shapes of all inputs must match: values[0].shape = %s != values[%d].shape = %s", shape, i, s)
		}
	}
	dims := shape.Dims()
	out, err := newShape(append(append(append([]int64{}, dims[:axis]...), int64(len(c.Inputs))), dims[axis:]...))
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, c.Input(0).DType(), out)
	if err != nil || out.Elements() == 0 {
		return m.done(err)
	}
	outer, inner := product64(dims[:axis]), product64(dims[axis:])
	at := int64(0)
	for i := range outer {
		for j := range c.Inputs {
			m.copy(at, c.Input(j), i*inner, inner)
			at += inner
		}
	}
	return m.done(nil)
}

func unpack(c *graph.Context) error {
	t := c.Input(0)
	shape := t.Shape()
	if shape.Rank() == 0 {
		return invalid("the input of Unpack must not be a scalar")
	}
	axis, err := axisIn(c.Node.Int("axis"), shape.Rank(), "axis")
	if err != nil {
		return err
	}
	if shape.Dim(axis) != int64(len(c.Outputs)) {
		return invalid("Input shape axis %d must equal %d, got shape %s", axis, len(c.Outputs), shape)
	}
	dims := shape.Dims()
	sizes := make([]int64, len(c.Outputs))
	for i := range sizes {
		sizes[i] = 1
	}
	return takeApart(c, t, axis, sizes, append(append([]int64{}, dims[:axis]...), dims[axis+1:]...))
}

// takeApart sets the outputs to parts of t along a dimension. dims are the extents of each output, or
// nil for those of t with the size of the part.
func takeApart(c *graph.Context, t *tensor.Tensor, axis int, sizes, dims []int64) error {
	all := t.Shape().Dims()
	inner, start := product64(all[axis+1:]), int64(0)
	for i, size := range sizes {
		d := dims
		if d == nil {
			d = append([]int64{}, all...)
			d[axis] = size
		}
		shape, err := newShape(d)
		if err != nil {
			return err
		}
		m, err := newMover(c, i, t.DType(), shape)
		if err != nil {
			return err
		}
		if n := size * inner; shape.Elements() > 0 {
			for j := range product64(all[:axis]) {
				m.copy(j*n, t, j*all[axis]*inner+start*inner, n)
			}
		}
		if err := m.done(nil); err != nil {
			return err
		}
		start += size
	}
	return nil
}

func splitKernel(c *graph.Context) error {
	t := c.Input(1)
	axis, err := axisOf(c, 0, t.Shape().Rank())
	if err != nil {
		return err
	}
	n := int64(len(c.Outputs))
	if t.Shape().Dim(axis)%n != 0 {
		return invalid("Number of ways to split should evenly divide the split dimension, but got split_dim %d (size = %d) and num_split %d",
			axis, t.Shape().Dim(axis), n)
	}
	sizes := make([]int64, n)
	for i := range sizes {
		sizes[i] = t.Shape().Dim(axis) / n
	}
	return takeApart(c, t, axis, sizes, nil)
}

func newSplitV(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("Tlen"); d == tensor.Int8 {
		return nil, noType("Tlen", d)
	}
	return moving("T", splitV)(n, nil)
}

func splitV(c *graph.Context) error {
	t := c.Input(0)
	sizes, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	axis, err := axisOf(c, 2, t.Shape().Rank())
	if err != nil {
		return err
	}
	if len(sizes) != len(c.Outputs) {
		return invalid("size_splits has %d elements, and num_split = %d", len(sizes), len(c.Outputs))
	}
	unknown := -1
	rest := t.Shape().Dim(axis)
	for i, s := range sizes {
		switch {
		case s == -1 && unknown < 0:
			unknown = i
		case s < 0 || s > rest:
			return invalid("size_splits %v does not fit dimension %d of %s", sizes, axis, t.Shape())
		default:
			rest -= s
		}
	}
	if unknown >= 0 {
		sizes[unknown] = rest
	} else if rest != 0 {
		return invalid("Determined shape must either match input shape along split_dim exactly if fully specified, or be less than the "+
			"size of the input along split_dim if not fully specified.  Got: %v of %s", sizes, t.Shape())
	}
	return takeApart(c, t, axis, sizes, nil)
}
