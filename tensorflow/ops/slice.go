package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func sliceOps() []entry {
	const masks = `; begin_mask: int = 0; end_mask: int = 0; ellipsis_mask: int = 0; new_axis_mask: int = 0; shrink_axis_mask: int = 0`
	return []entry{
		{`Slice(input: T, begin: Index, size: Index) -> (output: T); T: type; Index: index`, moving("T", sliceKernel)},
		{`StridedSlice(input: T, begin: Index, end: Index, strides: Index) -> (output: T); T: type; Index: {int16, int32, int64}` + masks,
			newStridedSlice},
		{`StridedSliceGrad(shape: Index, begin: Index, end: Index, strides: Index, dy: T) -> (output: T); T: type; Index: index` + masks,
			moving("T", stridedSliceGrad)},
	}
}

func sliceKernel(c *graph.Context) error {
	begin, err := intsOf(c, 1)
	if err != nil {
		return err
	}
	size, err := intsOf(c, 2)
	if err != nil {
		return err
	}
	in := c.Input(0).Shape()
	if len(begin) != in.Rank() || len(size) != in.Rank() {
		return invalid("Expected begin and size arguments to be 1-D tensors of size %d, but got shapes %s and %s instead.",
			in.Rank(), c.Input(1).Shape(), c.Input(2).Shape())
	}
	w := &walker{strides: stridesOf(in), index: make([]int64, in.Rank())}
	for i, b := range begin {
		if b < 0 || b > in.Dim(i) {
			return invalid("Expected begin[%d] in [0, %d], but got %d", i, in.Dim(i), b)
		}
		if size[i] == -1 {
			size[i] = in.Dim(i) - b
		}
		if size[i] < 0 || size[i] > in.Dim(i)-b {
			return invalid("Expected size[%d] in [0, %d], but got %d", i, in.Dim(i)-b, size[i])
		}
		w.offset += b * w.strides[i]
	}
	w.dims = size
	return w.gather(c, size)
}

// gather sets output 0 to the elements of input 0 that w finds, with the given extents.
func (w *walker) gather(c *graph.Context, dims []int64) error {
	shape, err := newShape(dims)
	if err != nil {
		return err
	}
	run, last := int64(1), len(w.dims)
	for last > 0 && shape.Elements() > 0 && w.strides[last-1] == run {
		last--
		run *= w.dims[last]
	}
	w.dims, w.strides, w.index = w.dims[:last], w.strides[:last], w.index[:last]
	return gatherElements(c, shape, w, run)
}

// stridedSlice describes a strided slice of a tensor.
type stridedSlice struct {
	w     *walker // over the elements of the tensor; a dimension that shrinks has one
	shape []int64 // of the result
}

// newStrided reads the inputs from index first on: begin, end and strides. in is the shape that is
// sliced.
func newStrided(c *graph.Context, first int, in tensor.Shape) (*stridedSlice, error) {
	var spec [3][]int64
	for i := range spec {
		var err error
		if spec[i], err = intsOf(c, first+i); err != nil {
			return nil, err
		}
	}
	if len(spec[0]) != len(spec[1]) || len(spec[0]) != len(spec[2]) {
		return nil, invalid("Expected begin, end, and strides to be 1D equal size tensors, but got lengths %d, %d, and %d instead.",
			len(spec[0]), len(spec[1]), len(spec[2]))
	}
	mask := func(name string, i int) bool { return i < 64 && c.Node.Int(name)>>i&1 != 0 }
	s := &stridedSlice{w: &walker{}}
	strides := stridesOf(in)
	used := 0 // dimensions that the entries take, beside the ellipsis
	ellipsis := false
	for i := range spec[0] {
		if mask("ellipsis_mask", i) {
			if ellipsis {
				return nil, invalid("Multiple ellipses in slice spec not allowed")
			}
			ellipsis = true
		} else if !mask("new_axis_mask", i) {
			used++
		}
	}
	if used > in.Rank() {
		return nil, invalid("Index out of range using input dim %d; input has only %d dims", in.Rank(), in.Rank())
	}
	dim := 0
	keep := func(n int) {
		for ; n > 0; n-- {
			s.add(in.Dim(dim), strides[dim], true)
			dim++
		}
	}
	for i := range spec[0] {
		switch {
		case mask("ellipsis_mask", i):
			keep(in.Rank() - used)
		case mask("new_axis_mask", i):
			s.shape = append(s.shape, 1)
		default:
			begin, n, step, err := sliceRange(spec[0][i], spec[1][i], spec[2][i], in.Dim(dim),
				mask("begin_mask", i), mask("end_mask", i), mask("shrink_axis_mask", i))
			if err != nil {
				return nil, invalid("slice index %d of dimension %d out of bounds or with a wrong stride: %s", spec[0][i], dim, err)
			}
			s.w.offset += begin * strides[dim]
			s.add(n, strides[dim]*step, !mask("shrink_axis_mask", i))
			dim++
		}
	}
	keep(in.Rank() - dim)
	s.w.index = make([]int64, len(s.w.dims))
	return s, nil
}

func (s *stridedSlice) add(n, stride int64, visible bool) {
	s.w.dims, s.w.strides = append(s.w.dims, n), append(s.w.strides, stride)
	if visible {
		s.shape = append(s.shape, n)
	}
}

// sliceRange returns where the slice of a dimension begins, how many elements it has, and its step.
func sliceRange(begin, end, step, dim int64, beginMask, endMask, shrink bool) (from, n, by int64, err error) {
	if step == 0 {
		return 0, 0, 0, invalid("strides must be non-zero")
	}
	if shrink {
		if step < 0 {
			return 0, 0, 0, invalid("only stride 1 allowed on non-range indexing.")
		}
		if begin < 0 {
			begin += dim
		}
		if begin < 0 || begin >= dim {
			return 0, 0, 0, invalid("the dimension has %d elements", dim)
		}
		return begin, 1, 1, nil
	}
	least, most := int64(0), dim // where a slice may begin and end
	if step < 0 {
		least, most = -1, dim-1
	}
	place := func(x int64, masked, isBegin bool) int64 {
		if masked {
			if isBegin == (step > 0) {
				return least
			}
			return most
		}
		if x < 0 {
			x += dim
		}
		return min(max(x, least), most)
	}
	from = place(begin, beginMask, true)
	to := place(end, endMask, false)
	if span := to - from; span != 0 && span < 0 == (step < 0) {
		n = span / step
		if span%step != 0 {
			n++
		}
	}
	if n == 0 {
		return 0, 0, 1, nil
	}
	if n == 1 {
		step = 1 // the stride of a single element could overflow
	}
	return from, n, step, nil
}

func newStridedSlice(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("Index"); d == tensor.Int16 {
		return nil, noType("Index", d)
	}
	return moving("T", func(c *graph.Context) error {
		s, err := newStrided(c, 1, c.Input(0).Shape())
		if err != nil {
			return err
		}
		return s.w.gather(c, s.shape)
	})(n, nil)
}

// stridedSliceGrad puts dy where the slice was, in zeros.
func stridedSliceGrad(c *graph.Context) error {
	shape, err := shapeOf(c, 0)
	if err != nil {
		return err
	}
	s, err := newStrided(c, 1, shape)
	if err != nil {
		return err
	}
	dy := c.Input(4)
	want, err := newShape(s.shape)
	if err != nil {
		return err
	}
	if !dy.Shape().Equal(want) {
		return invalid("shape of dy was %s instead of %s", dy.Shape(), want)
	}
	m, err := newMover(c, 0, dy.DType(), shape)
	if err != nil {
		return err
	}
	m.clear()
	for i := range want.Elements() {
		m.copy(s.w.offset, dy, i, 1)
		s.w.next()
	}
	return m.done(nil)
}
