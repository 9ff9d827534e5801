package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func fillOps() []entry {
	return []entry{
		{`Fill(dims: index_type, value: T) -> (output: T); T: type; index_type: {int32, int64} = int32`, newFill},
		{`ZerosLike(x: T) -> (y: T); T: type`, newLike(0)},
		{`OnesLike(x: T) -> (y: T); T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, complex64, ` +
			`complex128, bool}`, newLike(1)},
	}
}

func newFill(n *graph.Node, _ *State) (graph.Kernel, error) {
	if t := n.Type("T"); !t.Plain() && t != tensor.String {
		return nil, noType("T", t)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		shape, err := shapeOf(c, 0)
		if err != nil {
			return err
		}
		value := c.Input(1)
		if value.Shape().Elements() != 1 {
			return invalid("value must be a scalar, but has the shape %s", value.Shape())
		}
		if value.DType() == tensor.String {
			return setStrings(c, 0, shape, func(int) string { return value.Elements()[0] })
		}
		t, err := c.Allocate(value.DType(), shape)
		if err != nil {
			return err
		}
		repeat(t.Bytes(), value.Bytes())
		c.Set(0, t)
		return nil
	}), nil
}

// repeat fills b with copies of unit.
func repeat(b, unit []byte) {
	for n := copy(b, unit); n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// setStrings sets output i to a tensor of strings.
func setStrings(c *graph.Context, i int, shape tensor.Shape, f func(j int) string) error {
	if shape.Elements() > maxStrings {
		return invalid("a tensor of strings with the shape %s: the kernel set go makes at most %d elements", shape, maxStrings)
	}
	if err := c.Scratch(stringBytes * shape.Elements()); err != nil {
		return err
	}
	elems := make([]string, shape.Elements())
	for j := range elems {
		elems[j] = f(j)
	}
	return setElements(c, i, shape, elems)
}

// setElements sets output i to a tensor of strings, whose memory it counts: the strings may be those of an
// input, which outlive it then.
func setElements(c *graph.Context, i int, shape tensor.Shape, elems []string) error {
	t, err := stringsTensor(c, shape, elems)
	if err == nil {
		c.Set(i, t)
	}
	return err
}

// stringsTensor returns a tensor of strings, which the allocator of the step counts.
func stringsTensor(c *graph.Context, shape tensor.Shape, elems []string) (*tensor.Tensor, error) {
	n := stringBytes * int64(len(elems))
	for _, e := range elems {
		n += int64(len(e))
	}
	held, err := tensor.Reserve(c.Step.Allocator, n)
	if err != nil {
		return nil, err
	}
	t, err := tensor.FromReserved(tensor.String, shape, elems, held)
	if err != nil {
		held.Release()
		return nil, err
	}
	return t, nil
}

// newLike makes a kernel whose output has the shape and type of its input, and one value.
func newLike(value float64) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		d := n.Type("T")
		if d == tensor.Variant && value == 0 {
			return graph.KernelFunc(listZeros), nil
		}
		unit, err := oneElement(d, value)
		if err != nil {
			return nil, err
		}
		return graph.KernelFunc(func(c *graph.Context) error {
			if d == tensor.String {
				return setStrings(c, 0, c.Input(0).Shape(), func(int) string { return "" })
			}
			t, err := c.Allocate(d, c.Input(0).Shape())
			if err != nil {
				return err
			}
			repeat(t.Bytes(), unit)
			c.Set(0, t)
			return nil
		}), nil
	}
}

// oneElement returns the memory of one element with a small value.
func oneElement(d tensor.DType, value float64) ([]byte, error) {
	if value == 0 && (d.Plain() || d == tensor.String) {
		return make([]byte, d.Size()), nil
	}
	cast, err := findCast(tensor.Float64, d)
	if err != nil {
		return nil, err
	}
	from, err := tensor.FromSlice(tensor.Shape{}, []float64{value})
	if err != nil {
		return nil, err
	}
	to, err := tensor.Allocate(tensor.Heap{}, d, tensor.Shape{})
	if err != nil {
		return nil, err
	}
	err = cast(to, from)
	return to.Bytes(), err
}
