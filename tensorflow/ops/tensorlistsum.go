package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// listZeros sets output 0 to a list of zeros of the shapes of another. Places that nobody has set stay so.
func listZeros(c *graph.Context) error {
	l, err := listAt(c)
	if err != nil {
		return err
	}
	done := zeroLists{listsOf[*tensorList]{}}
	defer done.release()
	out, err := done.zeros(c, l)
	if err == nil {
		out.Retain()
		setList(c, out)
	}
	return err
}

// listsOf are lists that a kernel has made, by those that it has made them of: one list may be in another many times, and at each
// level of lists in lists.
type listsOf[K comparable] map[K]*tensorList

func (done listsOf[K]) release() {
	for _, l := range done {
		l.Release()
	}
}

// make returns the list for a key, which fill fills when it is new. done has the reference.
func (done listsOf[K]) make(c *graph.Context, k K, like *tensorList, fill func(out *tensorList) error) (*tensorList, error) {
	if l := done[k]; l != nil {
		return l, nil
	}
	out, err := newTensorList(c, like.dtype, like.shape, like.most, len(like.elements))
	if err != nil {
		return nil, err
	}
	if err := fill(out); err != nil {
		out.Release()
		return nil, err
	}
	done[k] = out
	return out, nil
}

// zeroLists are lists of zeros, by the lists whose shapes they have.
type zeroLists struct{ listsOf[*tensorList] }

func (done zeroLists) zeros(c *graph.Context, l *tensorList) (*tensorList, error) {
	return done.make(c, l, l, func(out *tensorList) error {
		for i, v := range l.elements {
			if err := done.zeroAt(c, out, i, v); err != nil {
				return err
			}
		}
		return nil
	})
}

// zeroAt sets a place to the zeros of an element.
func (done zeroLists) zeroAt(c *graph.Context, out *tensorList, i int, v graph.Value) error {
	if empty(v) {
		return nil
	}
	if inner, ok := v.Opaque.(*tensorList); ok {
		zeros, err := done.zeros(c, inner)
		if err != nil {
			return err
		}
		return out.put(c, i, graph.Value{Opaque: zeros})
	}
	zeros, err := zerosOf(c, v.Tensor)
	if err != nil {
		return err
	}
	defer zeros.Release()
	return out.put(c, i, graph.Value{Tensor: zeros})
}

func zerosOf(c *graph.Context, t *tensor.Tensor) (*tensor.Tensor, error) {
	if t.DType() == tensor.String {
		return stringsTensor(c, t.Shape(), make([]string, t.Shape().Elements()))
	}
	zeros, err := c.Allocate(t.DType(), t.Shape())
	if err == nil {
		clear(zeros.Bytes())
	}
	return zeros, err
}

// listSum sets output 0 to the sum of lists, element by element. A place that nobody has set is zero.
func listSum(c *graph.Context) error {
	sum := c.Inputs[0].Retain()
	defer func() { sum.Release() }()
	for i := range c.Inputs {
		l, ok := c.Inputs[i].Opaque.(*tensorList)
		if !ok {
			return invalid("input %d is not a list", i)
		}
		if before, ok := sum.Opaque.(*tensorList); ok && i > 0 {
			next, err := addLists(c, before, l)
			if err != nil {
				return err
			}
			sum.Release()
			sum = graph.Value{Opaque: next}
		}
	}
	c.Outputs[0] = sum.Retain()
	return nil
}

// pair are two lists.
type pair struct{ a, b *tensorList }

// listSums are sums of lists, by the lists that were added.
type listSums struct{ listsOf[pair] }

// addLists returns the sum of two lists, with a reference for the caller.
func addLists(c *graph.Context, a, b *tensorList) (*tensorList, error) {
	done := listSums{listsOf[pair]{}}
	defer done.release()
	sum, err := done.sum(c, pair{a, b})
	if err == nil {
		sum.Retain()
	}
	return sum, err
}

func (done listSums) sum(c *graph.Context, p pair) (*tensorList, error) {
	a, b := p.a, p.b
	switch {
	case a.dtype != b.dtype:
		return nil, invalid("Trying to add two lists of tensors of different dtypes. One is %s and the other is %s", a.dtype, b.dtype)
	case !a.shape.compatible(b.shape):
		return nil, invalid("Trying to add two lists of tensors with incompatible element shapes. One is %s and the other is %s", a.shape, b.shape)
	case len(a.elements) != len(b.elements):
		return nil, invalid("Trying to add two lists of tensors with different lengths. One is %d and the other is %d", len(a.elements), len(b.elements))
	}
	return done.make(c, p, a, func(out *tensorList) (err error) {
		if out.shape, err = a.shape.merged(b.shape); err != nil {
			return err
		}
		for i := range a.elements {
			if err := done.sumAt(c, out, i, a.elements[i], b.elements[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// sumAt sets a place to the sum of two elements.
func (done listSums) sumAt(c *graph.Context, out *tensorList, i int, x, y graph.Value) error {
	switch {
	case empty(x) && empty(y):
		return nil
	case empty(y):
		return out.put(c, i, x)
	case empty(x):
		return out.put(c, i, y)
	}
	a, isList := x.Opaque.(*tensorList)
	if b, ok := y.Opaque.(*tensorList); ok && isList {
		inner, err := done.sum(c, pair{a, b})
		if err != nil {
			return err
		}
		return out.put(c, i, graph.Value{Opaque: inner})
	}
	if x.Tensor == nil || y.Tensor == nil {
		return invalid("Trying to add a list to what is none")
	}
	if !x.Tensor.Shape().Equal(y.Tensor.Shape()) {
		return invalid("Trying to add two tensors with incompatible element shapes. One is %s and the other is %s", x.Tensor.Shape(), y.Tensor.Shape())
	}
	add, err := vectorFunc("Add", out.dtype)
	if err != nil {
		return err
	}
	sum, err := c.Allocate(out.dtype, x.Tensor.Shape())
	if err != nil {
		return err
	}
	defer sum.Release()
	if err := add(sum, x.Tensor, y.Tensor); err != nil {
		return err
	}
	return out.put(c, i, graph.Value{Tensor: sum})
}
