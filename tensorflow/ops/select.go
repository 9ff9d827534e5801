package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// newSelect makes the kernel of Select, whose condition is a scalar, has the shape of the values, or
// has one element for each of their rows.
func newSelect(n *graph.Node, _ *State) (graph.Kernel, error) {
	if t := n.Type("T"); !movable(t) {
		return nil, noType("T", t)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		cond, err := inputOf[bool](c, 0)
		if err != nil {
			return err
		}
		shape, x, y := c.Input(0).Shape(), c.Input(1), c.Input(2)
		if !x.Shape().Equal(y.Shape()) {
			return invalid("'then' and 'else' must have the same shape, but have %s and %s", x.Shape(), y.Shape())
		}
		total := x.Shape().Elements()
		switch {
		case shape.Rank() == 0:
			if cond[0] {
				c.Forward(0, 1)
			} else {
				c.Forward(0, 2)
			}
			return nil
		case shape.Equal(x.Shape()):
		case shape.Rank() == 1 && x.Shape().Rank() > 0 && x.Shape().Dim(0) == shape.Dim(0):
		default:
			return invalid("'cond' must be a scalar, a vector of rows, or have the shape %s of 'then', but has %s", x.Shape(), shape)
		}
		m, err := newMover(c, 0, x.DType(), x.Shape())
		if err != nil || total == 0 {
			return m.done(err)
		}
		width := total / int64(len(cond))
		for i, b := range cond {
			from := y
			if b {
				from = x
			}
			m.copy(int64(i)*width, from, int64(i)*width, width)
		}
		return m.done(nil)
	}), nil
}

// newSelectV2 makes the kernel of SelectV2, which broadcasts all three operands.
func newSelectV2(n *graph.Node, _ *State) (graph.Kernel, error) {
	if t := n.Type("T"); !movable(t) {
		return nil, noType("T", t)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		cond, err := inputOf[bool](c, 0)
		if err != nil {
			return err
		}
		values, err := newBroadcast(c.Input(1).Shape(), c.Input(2).Shape())
		if err != nil {
			return err
		}
		all, err := newBroadcast(c.Input(0).Shape(), values.shape)
		if err != nil {
			return err
		}
		m, err := newMover(c, 0, c.Input(1).DType(), all.shape)
		if err != nil || all.shape.Elements() == 0 {
			return m.done(err)
		}
		at := [3]*walker{}
		for i := range at {
			at[i] = newWalker(c.Input(i).Shape(), all.shape)
		}
		for i := range all.shape.Elements() {
			from := 2
			if cond[at[0].offset] {
				from = 1
			}
			m.copy(i, c.Input(from), at[from].offset, 1)
			for _, w := range at {
				w.next()
			}
		}
		return m.done(nil)
	}), nil
}

// walker goes through the elements of a shape and gives the offset of each in a tensor that is
// broadcast to it.
type walker struct {
	dims, strides, index []int64
	offset               int64
}

// newWalker returns a walker over shape to for a tensor of shape from, which must fit.
func newWalker(from, to tensor.Shape) *walker {
	w := &walker{dims: to.Dims(), strides: make([]int64, to.Rank()), index: make([]int64, to.Rank())}
	stride := int64(1)
	for i := 1; i <= from.Rank(); i++ {
		if d := from.Dim(from.Rank() - i); d != 1 {
			w.strides[to.Rank()-i] = stride
			stride *= d
		}
	}
	return w
}

func (w *walker) next() {
	for i := len(w.dims) - 1; i >= 0; i-- {
		w.offset += w.strides[i]
		if w.index[i]++; w.index[i] < w.dims[i] {
			return
		}
		w.offset -= w.dims[i] * w.strides[i]
		w.index[i] = 0
	}
}

// newWhere makes the kernel of Where: the indices of the elements that are not zero.
func newWhere(n *graph.Node, _ *State) (graph.Kernel, error) {
	d := n.Type("T")
	cast, err := findCast(d, tensor.Bool)
	if d != tensor.Bool && err != nil {
		return nil, noType("T", d)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		t := c.Input(0)
		if d != tensor.Bool {
			b, _, err := allocate[bool](c, t.Shape())
			if err != nil {
				return err
			}
			defer b.Release()
			if err := cast(b, t); err != nil {
				return err
			}
			t = b
		}
		v, err := tensor.Values[bool](t)
		if err != nil {
			return err
		}
		count := int64(0)
		for _, b := range v {
			if b {
				count++
			}
		}
		rank := t.Shape().Rank()
		shape, err := newShape([]int64{count, int64(rank)})
		if err != nil {
			return err
		}
		out, err := setOutput[int64](c, 0, shape)
		if err != nil {
			return err
		}
		w, at := newWalker(t.Shape(), t.Shape()), 0
		for _, b := range v {
			if b {
				at += copy(out[at:], w.index)
			}
			w.next()
		}
		return nil
	}), nil
}
