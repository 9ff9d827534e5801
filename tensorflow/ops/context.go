package ops

import (
	"fmt"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// invalid returns an InvalidArgument.
func invalid(format string, args ...any) error {
	return status.Errorf(status.InvalidArgument, format, args...)
}

// argName names input i in error texts, by the definition of the op.
func argName(c *graph.Context, i int) string {
	if args := c.Node.OpDef.GetInputArg(); i < len(args) {
		return args[i].GetName()
	}
	return fmt.Sprintf("input %d", i)
}

// inputOf returns the elements of input i. They may be written only if the output is over the same
// memory (output).
func inputOf[T tensor.Element](c *graph.Context, i int) ([]T, error) {
	t := c.Input(i)
	if t == nil {
		return nil, status.Errorf(status.Internal, "%s has no tensor", argName(c, i))
	}
	return tensor.Values[T](t)
}

// scalarOf returns the only element of input i. As in TensorFlow any tensor with one element passes.
func scalarOf[T tensor.Element](c *graph.Context, i int) (T, error) {
	v, err := inputOf[T](c, i)
	if err != nil {
		return *new(T), err
	}
	if len(v) != 1 {
		return *new(T), invalid("%s must be a scalar, but has the shape %s", argName(c, i), c.Input(i).Shape())
	}
	return v[0], nil
}

// intsOf returns the elements of input i, a tensor of int32 or int64, as a new slice.
func intsOf(c *graph.Context, i int) ([]int64, error) {
	t := c.Input(i)
	if t == nil {
		return nil, status.Errorf(status.Internal, "%s has no tensor", argName(c, i))
	}
	if err := c.Scratch(8 * t.Shape().Elements()); err != nil {
		return nil, err
	}
	return intsOfTensor(t, argName(c, i))
}

func intsOfTensor(t *tensor.Tensor, name string) ([]int64, error) {
	switch t.DType() {
	case tensor.Int32:
		v, err := tensor.Values[int32](t)
		if err != nil {
			return nil, err
		}
		ints := make([]int64, len(v))
		for i, n := range v {
			ints[i] = int64(n)
		}
		return ints, nil
	case tensor.Int64:
		v, err := tensor.Values[int64](t)
		return append([]int64(nil), v...), err
	}
	return nil, invalid("%s must be of the type int32 or int64, but is %s", name, t.DType())
}

// intOf returns the only element of input i, an int32 or int64.
func intOf(c *graph.Context, i int) (int64, error) {
	v, err := intsOf(c, i)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 {
		return 0, invalid("%s must be a scalar, but has the shape %s", argName(c, i), c.Input(i).Shape())
	}
	return v[0], nil
}

// shapeOf returns the shape whose extents are the elements of input i, a vector.
func shapeOf(c *graph.Context, i int) (tensor.Shape, error) {
	dims, err := intsOf(c, i)
	if err != nil {
		return tensor.Shape{}, err
	}
	if c.Input(i).Shape().Rank() != 1 {
		return tensor.Shape{}, invalid("%s must be a vector of extents, but has the shape %s", argName(c, i), c.Input(i).Shape())
	}
	return newShape(dims)
}

// newShape is tensor.NewShape; the error is InvalidArgument.
func newShape(dims []int64) (tensor.Shape, error) { return tensor.NewShape(dims...) }

// allocate returns a new tensor and its elements.
func allocate[T tensor.Element](c *graph.Context, shape tensor.Shape) (*tensor.Tensor, []T, error) {
	t, err := c.Allocate(tensor.TypeOf[T](), shape)
	if err != nil {
		return nil, nil, err
	}
	var v []T
	if shape.Elements() > 0 && tensor.TypeOf[T]() == tensor.Bool {
		clear(t.Bytes()) // Values checks that each byte is a bool
	}
	if v, err = tensor.Values[T](t); err != nil {
		t.Release()
		return nil, nil, err
	}
	return t, v, nil
}

// setOutput allocates output i and returns its elements, to be written.
func setOutput[T tensor.Element](c *graph.Context, i int, shape tensor.Shape) ([]T, error) {
	t, v, err := allocate[T](c, shape)
	if err == nil {
		c.Set(i, t)
	}
	return v, err
}

// reuseOutput is setOutput over the memory of an input of the same type and shape, if nobody else
// has a reference to it: a kernel that writes element i after it has read element i saves the
// allocation.
func reuseOutput[T tensor.Element](c *graph.Context, i int, shape tensor.Shape, inputs ...int) ([]T, error) {
	for _, j := range inputs {
		t := c.Input(j)
		if t == nil || t.DType() != tensor.TypeOf[T]() || !t.Shape().Equal(shape) || !writable(t) {
			continue
		}
		v, err := tensor.Values[T](t)
		if err != nil {
			continue
		}
		c.Set(i, t.Retain())
		return v, nil
	}
	return setOutput[T](c, i, shape)
}

// writable reports whether the memory of t has no other user. A part of other memory never is, since
// its references say nothing about the whole.
func writable(t *tensor.Tensor) bool {
	root, _ := t.Buffer().Root()
	return root == t.Buffer() && root.Unique()
}

// scalarTensor returns a scalar.
func scalarTensor[T tensor.Element](c *graph.Context, v T) (*tensor.Tensor, error) {
	t, elems, err := allocate[T](c, tensor.Shape{})
	if err == nil {
		elems[0] = v
	}
	return t, err
}
