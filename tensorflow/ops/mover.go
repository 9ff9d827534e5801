package ops

import (
	"encoding/binary"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// movable reports whether the elements of a type can be moved without knowing them.
func movable(d tensor.DType) bool { return d.Plain() || d == tensor.String }

// mover fills an output with elements of inputs, whatever their type is. A nil mover does nothing.
type mover struct {
	c     *graph.Context
	out   int
	shape tensor.Shape
	size  int64 // bytes of an element; 0 for strings
	bytes []byte
	elems []string
}

// newMover allocates output i. The caller copies elements into it, and calls done.
func newMover(c *graph.Context, i int, dtype tensor.DType, shape tensor.Shape) (*mover, error) {
	m := &mover{c: c, out: i, shape: shape, size: int64(dtype.Size())}
	if dtype == tensor.String {
		if shape.Elements() > maxStrings {
			return nil, invalid("a tensor of strings with the shape %s: the kernel set go makes at most %d elements", shape, maxStrings)
		}
		if err := c.Scratch(stringBytes * shape.Elements()); err != nil {
			return nil, err
		}
		m.elems = make([]string, shape.Elements())
		return m, nil
	}
	t, err := c.Allocate(dtype, shape)
	if err != nil {
		return nil, err
	}
	m.bytes = t.Bytes()
	c.Set(i, t)
	return m, nil
}

// clear sets all elements to zero.
func (m *mover) clear() { clear(m.bytes) }

// copy copies n elements of t from offset off to offset at.
func (m *mover) copy(at int64, t *tensor.Tensor, off, n int64) {
	if m.elems != nil || m.size == 0 {
		copy(m.elems[at:at+n], t.Elements()[off:off+n])
		return
	}
	src := t.Bytes()
	switch {
	case n == 1 && m.size == 4:
		binary.LittleEndian.PutUint32(m.bytes[at*4:], binary.LittleEndian.Uint32(src[off*4:]))
	case n == 1 && m.size == 8:
		binary.LittleEndian.PutUint64(m.bytes[at*8:], binary.LittleEndian.Uint64(src[off*8:]))
	default:
		copy(m.bytes[at*m.size:(at+n)*m.size], src[off*m.size:(off+n)*m.size])
	}
}

// done sets an output of strings. It returns err, or its own error.
func (m *mover) done(err error) error {
	if err != nil || m == nil || m.size != 0 {
		return err
	}
	return setElements(m.c, m.out, m.shape, m.elems)
}

// reshaped returns t with another shape of as many elements, over the same memory.
func reshaped(t *tensor.Tensor, shape tensor.Shape) (*tensor.Tensor, error) {
	if t.Shape().Equal(shape) {
		return t.Retain(), nil
	}
	buf := t.Buffer().Retain()
	var r *tensor.Tensor
	var err error
	if t.DType().Plain() {
		r, err = tensor.New(t.DType(), shape, buf)
	} else {
		r, err = tensor.FromReserved(t.DType(), shape, t.Elements(), buf)
	}
	if err != nil {
		buf.Release()
		return nil, err
	}
	return r, nil
}
