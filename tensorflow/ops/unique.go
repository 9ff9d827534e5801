package ops

import (
	"encoding/binary"
	"math"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// uniqueOps find equal elements of a vector, or equal parts of a tensor.
func uniqueOps() []entry {
	const (
		types  = `; T: type; out_idx: index = int32`
		typesV = `; T: type; Taxis: index = int64; out_idx: index = int32`
	)
	return []entry{
		{`Unique(x: T) -> (y: T, idx: out_idx)` + types, newUnique},
		{`UniqueWithCounts(x: T) -> (y: T, idx: out_idx, count: out_idx)` + types, newUnique},
		{`UniqueV2(x: T, axis: Taxis) -> (y: T, idx: out_idx)` + typesV, newUnique},
		{`UniqueWithCountsV2(x: T, axis: Taxis) -> (y: T, idx: out_idx, count: out_idx)` + typesV, newUnique},
	}
}

func newUnique(n *graph.Node, _ *State) (graph.Kernel, error) {
	switch d := n.Type("T"); d {
	case tensor.Int32:
		return graph.KernelFunc(uniqueOf[int32]), nil
	case tensor.Int64:
		return graph.KernelFunc(uniqueOf[int64]), nil
	case tensor.Float32:
		return graph.KernelFunc(uniqueOf[float32]), nil
	case tensor.Float64:
		return graph.KernelFunc(uniqueOf[float64]), nil
	case tensor.String:
		return graph.KernelFunc(func(c *graph.Context) error {
			p, err := dimensionOf(c)
			if err == nil && p.single() {
				return unique(c, p, c.Input(0).Elements())
			}
			return uniqueParts(c, p, err)
		}), nil
	case tensor.Int8, tensor.Uint8, tensor.Int16, tensor.Uint16, tensor.Uint32, tensor.Uint64, tensor.Bool, tensor.Float16, tensor.BFloat16:
		return graph.KernelFunc(func(c *graph.Context) error {
			p, err := dimensionOf(c)
			return uniqueParts(c, p, err)
		}), nil
	default:
		return nil, noType("T", d)
	}
}

func uniqueOf[T tensor.Element](c *graph.Context) error {
	p, err := dimensionOf(c)
	if err != nil || !p.single() {
		return uniqueParts(c, p, err)
	}
	x, err := inputOf[T](c, 0)
	if err != nil {
		return err
	}
	return unique(c, p, x)
}

// dimension is the one along which the parts of a tensor are compared.
type dimension struct {
	axis                int
	outer, count, inner int64 // extents before the dimension, of it and behind it, multiplied
}

// single reports whether a part is one element.
func (p dimension) single() bool { return p.outer == 1 && p.inner == 1 }

// dimensionOf returns the dimension of input 0. Input 1 of the second version is a list of one dimension, or of none for a vector.
func dimensionOf(c *graph.Context) (dimension, error) {
	shape, axis := c.Input(0).Shape(), int64(0)
	named := false
	if len(c.Inputs) > 1 {
		list, err := intsOf(c, 1)
		switch {
		case err != nil:
			return dimension{}, err
		case c.Input(1).Shape().Rank() != 1:
			return dimension{}, invalid("axis expects a 1D vector.")
		case len(list) > 1:
			return dimension{}, invalid("axis does not support input tensors larger than 1 elements")
		case len(list) == 1:
			axis, named = list[0], true
		}
	}
	n := int64(shape.Rank())
	if !named && n != 1 {
		return dimension{}, invalid("unique expects a 1D vector.")
	}
	if axis < 0 {
		axis += n
	}
	if axis < 0 || axis >= n {
		return dimension{}, invalid("axis has to be between [0, %d)", n)
	}
	dims := shape.Dims()
	return dimension{int(axis), product64(dims[:axis]), dims[axis], product64(dims[axis+1:])}, nil
}

// uniqueBytes is what unique takes for an element, in bytes: its place, and at most an entry of the map and of both lists.
// partKeyBytes is what a key of uniqueParts takes beside its bytes. maxParts keeps the product of both from overflowing.
const (
	maxParts     = 1 << 48
	uniqueBytes  = 8 + 64 + 32
	partKeyBytes = 32
)

// unique gives the first of equal elements, for each element its place among them, and how often each
// occurs.
func unique[T comparable](c *graph.Context, p dimension, x []T) error {
	if err := c.Scratch(uniqueBytes * int64(len(x))); err != nil {
		return err
	}
	u := firsts{index: make([]int64, len(x))}
	seen := make(map[T]int64)
	for i, v := range x {
		at, ok := seen[v]
		if !ok {
			at = u.add(int64(i))
			seen[v] = at
		}
		u.put(i, at)
	}
	return u.output(c, p)
}

// uniqueParts is unique for parts of several elements, and for types without a map of their own. A part is compared by
// the bytes that appendKey gives.
func uniqueParts(c *graph.Context, p dimension, err error) error {
	if err != nil {
		return err
	}
	t := c.Input(0)
	if p.count > maxParts { // of a tensor without elements
		return status.Errorf(status.ResourceExhausted, "the dimension %d has %d parts; at most %d are compared", p.axis, p.count, int64(maxParts))
	}
	size, row := int64(t.DType().Size()), p.outer*p.inner
	bytes := t.Shape().Elements() * size
	if t.DType() == tensor.String {
		for _, s := range t.Elements() {
			bytes += int64(len(s)) + binary.MaxVarintLen64
		}
	}
	if err := c.Scratch(bytes + bytes/max(p.count, 1) + (uniqueBytes+partKeyBytes)*p.count); err != nil {
		return err
	}
	u := firsts{index: make([]int64, p.count)}
	seen := make(map[string]int64)
	outer := p.outer
	if p.inner == 0 {
		outer = 0 // it may be huge
	}
	var key []byte
	for i := range p.count {
		key = key[:0]
		same := true // false for what is not a number: it equals nothing
		for j := range outer {
			from := (j*p.count + i) * p.inner
			for k := from; k < from+p.inner && same; k++ {
				key, same = appendKey(key, t, k, row == 1)
			}
		}
		at, ok := int64(0), false
		if same {
			at, ok = seen[string(key)]
		}
		if !ok {
			at = u.add(i)
			if same {
				seen[string(key)] = at
			}
		}
		u.put(int(i), at)
	}
	return u.output(c, p)
}

// appendKey appends the bytes by which element i of t is compared, and reports whether it equals itself. The two zeros
// of floats are equal, except those of half and bfloat16 that are a part alone (exact): so it is in TensorFlow.
func appendKey(key []byte, t *tensor.Tensor, i int64, exact bool) ([]byte, bool) {
	if t.DType() == tensor.String {
		s := t.Elements()[i]
		return append(binary.AppendUvarint(key, uint64(len(s))), s...), true
	}
	size := int64(t.DType().Size())
	b := t.Bytes()[i*size : (i+1)*size]
	value := 1.0
	switch t.DType() {
	case tensor.Float32:
		value = float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case tensor.Float64:
		value = math.Float64frombits(binary.LittleEndian.Uint64(b))
	case tensor.Float16:
		value = float64(fromHalf(tensor.Float16Bits(binary.LittleEndian.Uint16(b))))
	case tensor.BFloat16:
		value = float64(fromBrain(tensor.BFloat16Bits(binary.LittleEndian.Uint16(b))))
	}
	if value == 0 && !exact {
		return append(key, make([]byte, size)...), true
	}
	return append(key, b...), value == value
}

// firsts collects the first of equal parts.
type firsts struct {
	first, count []int64
	index        []int64 // of each part: its place in first
}

// add adds part i, which equals none before it, and returns its place.
func (u *firsts) add(i int64) int64 {
	u.first, u.count = append(u.first, i), append(u.count, 0)
	return int64(len(u.first) - 1)
}

func (u *firsts) put(i int, at int64) {
	u.index[i] = at
	u.count[at]++
}

// output sets the outputs.
func (u *firsts) output(c *graph.Context, p dimension) error {
	t := c.Input(0)
	dims := t.Shape().Dims()
	dims[p.axis] = int64(len(u.first))
	shape, err := newShape(dims)
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, t.DType(), shape)
	if err != nil {
		return err
	}
	if shape.Elements() > 0 {
		for j := range p.outer {
			for i, from := range u.first {
				m.copy((j*int64(len(u.first))+int64(i))*p.inner, t, (j*p.count+from)*p.inner, p.inner)
			}
		}
	}
	if err := m.done(nil); err != nil {
		return err
	}
	dtype := c.Node.Type("out_idx")
	if err := setInts(c, 1, dtype, tensor.Vector(len(u.index)), u.index); err != nil || len(c.Outputs) < 3 {
		return err
	}
	return setInts(c, 2, dtype, tensor.Vector(len(u.count)), u.count)
}
