package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// shapeOps are the ops that compute with shapes and do not touch elements.
func shapeOps() []entry {
	return []entry{
		{`Shape(input: T) -> (output: out_type); T: type; out_type: index = int32`, newShapeKernel},
		{`ShapeN(input: N*T) -> (output: N*out_type); N: int >= 1; T: type; out_type: index = int32`, newShapeKernel},
		{`Rank(input: T) -> (output: int32); T: type`, always(rankKernel)},
		{`Size(input: T) -> (output: out_type); T: type; out_type: index = int32`, newSize},
		{`Reshape(tensor: T, shape: Tshape) -> (output: T); T: type; Tshape: index = int32`, always(reshapeKernel)},
		{`ExpandDims(input: T, dim: Tdim) -> (output: T); T: type; Tdim: index = int32`, always(expandDims)},
		{`Squeeze(input: T) -> (output: T); T: type; squeeze_dims: list(int) >= 0 = []`, always(squeeze)},
		{`EnsureShape(input: T) -> (output: T); shape: shape; T: type`, always(ensureShape)},
		{`BroadcastGradientArgs(s0: T, s1: T) -> (r0: T, r1: T); T: index = int32`, always(broadcastGradientArgs)},
		{`BroadcastArgs(s0: T, s1: T) -> (r0: T); T: index = int32`, always(broadcastArgs)},
		{`ConcatOffset(concat_dim: int32, shape: N*shape_type) -> (offset: N*shape_type); N: int >= 2; shape_type: index = int32`,
			always(concatOffset)},
		{`InvertPermutation(x: T) -> (y: T); T: index = int32`, always(invertPermutation)},
	}
}

// tensorAt returns the tensor of input i; a resource or variant is an error.
func tensorAt(c *graph.Context, i int) (*tensor.Tensor, error) {
	if t := c.Input(i); t != nil {
		return t, nil
	}
	return nil, invalid("%s is a resource or a variant, which has no elements", argName(c, i))
}

func newShapeKernel(n *graph.Node, _ *State) (graph.Kernel, error) {
	dtype := n.Type("out_type")
	return graph.KernelFunc(func(c *graph.Context) error {
		for i := range c.Inputs {
			t, err := tensorAt(c, i)
			if err != nil {
				return err
			}
			if err := setShape(c, i, dtype, t.Shape()); err != nil {
				return err
			}
		}
		return nil
	}), nil
}

func rankKernel(c *graph.Context) error {
	t, err := tensorAt(c, 0)
	if err != nil {
		return err
	}
	return setInts(c, 0, tensor.Int32, tensor.Shape{}, []int64{int64(t.Shape().Rank())})
}

func newSize(n *graph.Node, _ *State) (graph.Kernel, error) {
	dtype := n.Type("out_type")
	return graph.KernelFunc(func(c *graph.Context) error {
		t, err := tensorAt(c, 0)
		if err != nil {
			return err
		}
		return setInts(c, 0, dtype, tensor.Shape{}, []int64{t.Shape().Elements()})
	}), nil
}

// setReshaped sets output 0 to input 0 with other extents.
func setReshaped(c *graph.Context, dims []int64) error {
	t, err := tensorAt(c, 0)
	if err != nil {
		return err
	}
	shape, err := newShape(dims)
	if err != nil {
		return err
	}
	if shape.Elements() != t.Shape().Elements() {
		return invalid("Input to reshape is a tensor with %d values, but the requested shape has %d",
			t.Shape().Elements(), shape.Elements())
	}
	r, err := reshaped(t, shape)
	if err == nil {
		c.Set(0, r)
	}
	return err
}

// reshapeKernel computes the extent that is −1 from the others.
func reshapeKernel(c *graph.Context) error {
	dims, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	if s := c.Input(1).Shape(); s.Rank() != 1 {
		return invalid("sizes input must be 1-D, not %s", s)
	}
	t, err := tensorAt(c, 0)
	if err != nil {
		return err
	}
	unknown := -1
	known := make([]int64, 0, len(dims))
	for i, d := range dims {
		switch {
		case d == -1 && unknown >= 0:
			return invalid("Only one input size may be -1, not both %d and %d", unknown, i)
		case d == -1:
			unknown = i
		case d < 0:
			return invalid("Size %d must be non-negative, not %d", i, d)
		default:
			known = append(known, d)
		}
	}
	if unknown >= 0 {
		rest, err := newShape(known)
		if err != nil {
			return err
		}
		n := rest.Elements()
		if n == 0 {
			return invalid("reshape cannot infer the missing input size for an empty tensor unless all specified input sizes are non-zero")
		}
		if t.Shape().Elements()%n != 0 {
			return invalid("Input to reshape is a tensor with %d values, but the requested shape requires a multiple of %d",
				t.Shape().Elements(), n)
		}
		dims[unknown] = t.Shape().Elements() / n
	}
	return setReshaped(c, dims)
}

func expandDims(c *graph.Context) error {
	t, err := tensorAt(c, 0)
	if err != nil {
		return err
	}
	axis, err := axisOf(c, 1, t.Shape().Rank()+1)
	if err != nil {
		return err
	}
	dims := t.Shape().Dims()
	return setReshaped(c, append(append(append([]int64{}, dims[:axis]...), 1), dims[axis:]...))
}

func squeeze(c *graph.Context) error {
	t, err := tensorAt(c, 0)
	if err != nil {
		return err
	}
	named := make(map[int]bool)
	for _, a := range c.Node.Ints("squeeze_dims") {
		axis, err := axisIn(a, t.Shape().Rank(), "squeeze_dims")
		if err != nil {
			return err
		}
		named[axis] = true
	}
	var dims []int64
	for i, d := range t.Shape().Dims() {
		if named[i] && d != 1 {
			return invalid("Can not squeeze dim[%d], expected a dimension of 1, got %d", i, d)
		}
		if d != 1 || (len(named) > 0 && !named[i]) {
			dims = append(dims, d)
		}
	}
	return setReshaped(c, dims)
}

func ensureShape(c *graph.Context) error {
	t, err := tensorAt(c, 0)
	if err != nil {
		return err
	}
	dims, known := c.Node.Shape("shape")
	fits := !known || len(dims) == t.Shape().Rank()
	for i, d := range dims {
		fits = fits && (d < 0 || d == t.Shape().Dim(i))
	}
	if !fits {
		return invalid("Shape of tensor %s %s is not compatible with expected shape %v", c.Node.Name, t.Shape(), dims)
	}
	c.Forward(0, 0)
	return nil
}

// broadcastGradientArgs gives the dimensions over which the gradient of a broadcast op is summed.
func broadcastGradientArgs(c *graph.Context) error {
	s0, err := intsOf(c, 0)
	if err != nil {
		return err
	}
	s1, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	rank := max(len(s0), len(s1))
	at := func(s []int64, i int) int64 {
		if i += len(s) - rank; i >= 0 {
			return s[i]
		}
		return 1
	}
	var r0, r1 []int64
	same := len(s0) == len(s1)
	for i := range rank {
		d0, d1 := at(s0, i), at(s1, i)
		if d0 != d1 && d0 != 1 && d1 != 1 {
			return invalid("Incompatible shapes: %v vs. %v", s0, s1)
		}
		same = same && d0 == d1
		if d0 == 1 {
			r0 = append(r0, int64(i))
		}
		if d1 == 1 {
			r1 = append(r1, int64(i))
		}
	}
	if same { // TensorFlow sums over nothing then, not over dimensions of one element
		r0, r1 = nil, nil
	}
	dtype := c.Node.Type("T")
	if err := setInts(c, 0, dtype, tensor.Vector(len(r0)), r0); err != nil {
		return err
	}
	return setInts(c, 1, dtype, tensor.Vector(len(r1)), r1)
}

func broadcastArgs(c *graph.Context) error {
	var shapes [2]tensor.Shape
	for i := range shapes {
		var err error
		if shapes[i], err = shapeOf(c, i); err != nil {
			return err
		}
	}
	b, err := newBroadcast(shapes[0], shapes[1])
	if err != nil {
		return err
	}
	return setShape(c, 0, c.Node.Type("T"), b.shape)
}

// concatOffset gives where each input begins in the output of a concatenation.
func concatOffset(c *graph.Context) error {
	n := len(c.Inputs) - 1
	var first []int64
	offset := int64(0)
	for i := range n {
		dims, err := intsOf(c, i+1)
		if err != nil {
			return err
		}
		if first == nil {
			first = dims
		}
		axis, err := axisOf(c, 0, len(first))
		if err != nil {
			return err
		}
		if len(dims) != len(first) {
			return invalid("input %d has %d dimensions, and input 0 has %d", i, len(dims), len(first))
		}
		for j := range dims {
			if j != axis && dims[j] != first[j] {
				return invalid("All dimensions except %d must match. Input %d has shape %v and doesn't match input 0 with shape %v.",
					axis, i, dims, first)
			}
		}
		out := make([]int64, len(dims))
		out[axis] = offset
		offset += dims[axis]
		if err := setInts(c, i, c.Node.Type("shape_type"), tensor.Vector(len(dims)), out); err != nil {
			return err
		}
	}
	return nil
}

func invertPermutation(c *graph.Context) error {
	x, err := intsOf(c, 0)
	if err != nil {
		return err
	}
	y := make([]int64, len(x))
	for i := range y {
		y[i] = -1
	}
	for i, v := range x {
		if v < 0 || v >= int64(len(x)) || y[v] >= 0 {
			return invalid("%d at index %d is not between 0 and %d, or occurs twice", v, i, len(x))
		}
		y[v] = int64(i)
	}
	return setInts(c, 0, c.Node.Type("T"), c.Input(0).Shape(), y)
}
