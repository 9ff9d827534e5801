package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// tensorList is the variant that loops of TensorFlow 2 keep their values in. It is a value: it changes only in the kernel that has
// its one reference, and a kernel that shares it makes a copy.
type tensorList struct {
	stepObject
	dtype    tensor.DType
	shape    partialShape // of the elements
	most     int          // elements; -1 for any number
	elements []graph.Value
	set      int // elements that are not empty
	depth    int // of lists in lists
}

// newTensorList returns a list with one reference and n empty places.
func newTensorList(c *graph.Context, dtype tensor.DType, shape partialShape, most, n int) (*tensorList, error) {
	l := &tensorList{dtype: dtype, shape: shape, most: most}
	if err := l.begin(c, "", l.drop); err != nil {
		return nil, err
	}
	if err := l.resize(c, n); err != nil {
		l.Release()
		return nil, err
	}
	return l, nil
}

// drop releases the elements. Lists in lists have at most maxListDepth levels.
func (l *tensorList) drop() {
	for _, v := range l.elements {
		v.Release()
	}
	l.elements = nil
}

// empty reports whether nobody has set a place.
func empty(v graph.Value) bool { return v.Tensor == nil && v.Opaque == nil }

// resize changes the number of places.
func (l *tensorList) resize(c *graph.Context, n int) error {
	more := n - len(l.elements)
	if more > 0 {
		if err := l.overhead.add(c.Step.Allocator, placeBytes*int64(more)); err != nil {
			return err
		}
		l.elements = append(l.elements, make([]graph.Value, more)...)
		return nil
	}
	for i := n; i < len(l.elements); i++ {
		l.clearAt(i)
	}
	l.elements = l.elements[:n]
	l.overhead.give(placeBytes * int64(-more))
	return nil
}

// clearAt makes a place empty.
func (l *tensorList) clearAt(i int) {
	if v := l.elements[i]; !empty(v) {
		v.Release()
		l.elements[i] = graph.Value{}
		l.set--
		l.overhead.give(partBytes)
	}
}

// put sets a place. It retains v.
func (l *tensorList) put(c *graph.Context, i int, v graph.Value) error {
	depth := 0
	if inner, ok := v.Opaque.(*tensorList); ok {
		depth = inner.depth + 1
	}
	if depth > maxListDepth {
		return invalid("a list in a list has more than %d levels: the kernel set go makes no more", maxListDepth)
	}
	if err := l.overhead.add(c.Step.Allocator, partBytes); err != nil {
		return err
	}
	l.clearAt(i)
	l.elements[i] = v.Retain()
	l.set++
	l.depth = max(l.depth, depth)
	return nil
}

// writableList returns the list of input 0 for a change: the list itself if nobody else has it, else a copy. The reference is the
// caller's.
func writableList(c *graph.Context, l *tensorList) (*tensorList, error) {
	if l.refs.Load() == 1 {
		c.Inputs[0] = graph.Value{}
		return l, nil
	}
	other, err := newTensorList(c, l.dtype, l.shape, l.most, len(l.elements))
	if err != nil {
		return nil, err
	}
	if err := other.overhead.add(c.Step.Allocator, partBytes*int64(l.set)); err != nil {
		other.Release()
		return nil, err
	}
	for i, v := range l.elements {
		other.elements[i] = v.Retain()
	}
	other.set, other.depth = l.set, l.depth
	return other, nil
}

// mergedAll returns the shape that all elements have, too.
func (l *tensorList) mergedAll(shape partialShape) (_ partialShape, err error) {
	for _, v := range l.elements {
		if v.Tensor == nil {
			continue
		}
		if shape, err = shape.merged(partialShape{dims: v.Tensor.Shape().Dims()}); err != nil {
			return shape, err
		}
	}
	return shape, nil
}
