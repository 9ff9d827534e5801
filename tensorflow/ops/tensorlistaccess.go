package ops

import (
	"math"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func tensorListOps() []entry {
	const dtype = `element_dtype: type`
	return []entry{
		{`EmptyTensorList(element_shape: shape_type, max_num_elements: int32) -> (handle: variant); ` + dtype + `; shape_type: index`, newEmptyList},
		{`TensorListReserve(element_shape: shape_type, num_elements: int32) -> (handle: variant); ` + dtype + `; shape_type: index`, newReservedList},
		{`TensorListFromTensor(tensor: element_dtype, element_shape: shape_type) -> (output_handle: variant); ` + dtype + `; shape_type: index`,
			moving("element_dtype", listFromTensor)},
		{`TensorListPushBack(input_handle: variant, tensor: element_dtype) -> (output_handle: variant); ` + dtype, inList(listPushBack)},
		{`TensorListPopBack(input_handle: variant, element_shape: int32) -> (output_handle: variant, tensor: element_dtype); ` + dtype,
			inList(listPopBack)},
		{`TensorListGetItem(input_handle: variant, index: int32, element_shape: Tshape) -> (item: element_dtype); ` + dtype +
			`; Tshape: index = int32`, inList(listGetItem)},
		{`TensorListSetItem(input_handle: variant, index: int32, item: element_dtype) -> (output_handle: variant); ` + dtype +
			`; resize_if_index_out_of_bounds: bool = false`, inList(listSetItem)},
		{`TensorListStack(input_handle: variant, element_shape: int32) -> (tensor: element_dtype); ` + dtype + `; num_elements: int = -1`,
			moving("element_dtype", listStack)},
		{`TensorListLength(input_handle: variant) -> (length: int32)`, always(listLength)},
		{`TensorListElementShape(input_handle: variant) -> (element_shape: shape_type); shape_type: index`, newListElementShape},
	}
}

// inList is moving for kernels that know lists in lists, too.
func inList(f graph.KernelFunc) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		if d := n.Type("element_dtype"); !movable(d) && d != tensor.Variant {
			return nil, noType("element_dtype", d)
		}
		return f, nil
	}
}

// elementShape returns the shape that input i says: a vector of extents, or -1 for any.
func elementShape(c *graph.Context, i int) (partialShape, error) {
	dims, err := intsOf(c, i)
	if err != nil {
		return partialShape{}, err
	}
	if c.Input(i).Shape().Rank() == 0 {
		if dims[0] != -1 {
			return partialShape{}, invalid("The only valid scalar shape tensor is the fully unknown shape specified as -1.")
		}
		return partialShape{any: true}, nil
	}
	if len(dims) > tensor.MaxDims {
		return partialShape{}, invalid("element_shape has %d dimensions, at most %d are allowed", len(dims), tensor.MaxDims)
	}
	for _, d := range dims {
		if d < -1 {
			return partialShape{}, invalid("Dimension %d must be >= -1", d)
		}
	}
	return partialShape{dims: dims}, nil
}

// scalarAt returns input i, a scalar of int32.
func scalarAt(c *graph.Context, i int) (int, error) {
	v, err := inputOf[int32](c, i)
	if err != nil {
		return 0, err
	}
	if s := c.Input(i).Shape(); s.Rank() != 0 {
		return 0, invalid("%s expected to be a scalar but got shape: %s", argName(c, i), s)
	}
	return int(v[0]), nil
}

// listAt returns the list of input 0, whose elements must have the type of the node if it says one.
func listAt(c *graph.Context) (*tensorList, error) {
	l, ok := c.Inputs[0].Opaque.(*tensorList)
	if !ok {
		return nil, invalid("Input handle is not a list.")
	}
	if c.Node.Def.GetAttr()["element_dtype"] != nil {
		if d := c.Node.Type("element_dtype"); d != l.dtype {
			return nil, invalid("Invalid data types; op elements %s but list elements %s", d, l.dtype)
		}
	}
	return l, nil
}

// setList sets output 0 to a list, whose reference it takes over.
func setList(c *graph.Context, l *tensorList) { c.Outputs[0] = graph.Value{Opaque: l} }

func newEmptyList(n *graph.Node, _ *State) (graph.Kernel, error) {
	return inList(func(c *graph.Context) error {
		most, err := scalarAt(c, 1)
		if err != nil {
			return err
		}
		shape, err := elementShape(c, 0)
		if err != nil {
			return err
		}
		l, err := newTensorList(c, c.Node.Type("element_dtype"), shape, most, 0)
		if err == nil {
			setList(c, l)
		}
		return err
	})(n, nil)
}

func newReservedList(n *graph.Node, _ *State) (graph.Kernel, error) {
	return inList(func(c *graph.Context) error {
		shape, err := elementShape(c, 0)
		if err != nil {
			return err
		}
		count, err := scalarAt(c, 1)
		if err != nil {
			return err
		}
		if count < 0 {
			return invalid("The num_elements to reserve must be a non negative number, but got %d", count)
		}
		l, err := newTensorList(c, c.Node.Type("element_dtype"), shape, -1, count)
		if err == nil {
			setList(c, l)
		}
		return err
	})(n, nil)
}

func listFromTensor(c *graph.Context) error {
	shape, err := elementShape(c, 1)
	if err != nil {
		return err
	}
	t := c.Input(0)
	dims := t.Shape().Dims()
	if len(dims) == 0 {
		return invalid("Tensor must be at least a vector, but saw shape: %s", t.Shape())
	}
	if of := (partialShape{dims: dims[1:]}); !shape.compatible(of) {
		return invalid("Specified a list with shape %s from a tensor with shape %s", shape, of)
	}
	if dims[0] > math.MaxInt32 {
		return invalid("a list has at most %d elements, not %d", math.MaxInt32, dims[0])
	}
	l, err := newTensorList(c, t.DType(), shape, -1, int(dims[0]))
	if err != nil {
		return err
	}
	setList(c, l)
	for i := range dims[0] {
		row, err := rowOf(c, t, i)
		if err != nil {
			return err
		}
		err = l.put(c, int(i), graph.Value{Tensor: row})
		row.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// fits reports whether a value may be an element of the list.
func (l *tensorList) fits(v graph.Value) (tensor.Shape, bool) {
	if v.Tensor == nil { // a list is a scalar
		return tensor.Shape{}, l.shape.fits(tensor.Shape{})
	}
	return v.Tensor.Shape(), l.shape.fits(v.Tensor.Shape())
}

func listPushBack(c *graph.Context) error {
	l, ok := c.Inputs[0].Opaque.(*tensorList)
	if !ok {
		return invalid("Input handle is not a list.")
	}
	if shape, ok := l.fits(c.Inputs[1]); !ok {
		return invalid("Tried to append a tensor with incompatible shape to a list. Op element shape: %s list shape: %s", shape, l.shape)
	}
	if _, err := listAt(c); err != nil {
		return err
	}
	size := len(l.elements)
	if l.most != -1 && size >= l.most {
		return invalid("Tried to push item into a full list list size: %d max_num_elements: %d", size, l.most)
	}
	out, err := writableList(c, l)
	if err != nil {
		return err
	}
	setList(c, out)
	if err := out.resize(c, size+1); err != nil {
		return err
	}
	return out.put(c, size, c.Inputs[1])
}

func listPopBack(c *graph.Context) error {
	l, err := listAt(c)
	if err != nil {
		return err
	}
	last := len(l.elements) - 1
	if last < 0 {
		return invalid("Trying to pop from an empty list.")
	}
	if v := l.elements[last]; !empty(v) {
		c.Outputs[1] = v.Retain()
	} else {
		said, err := elementShape(c, 1)
		if err != nil {
			return err
		}
		shape, err := said.merged(l.shape)
		if err != nil {
			return err
		}
		if !shape.known() {
			return invalid("Trying to read an uninitialized tensor but element_shape is not fully defined.%s", shape)
		}
		if err := setZeros(c, 1, l.dtype, shape); err != nil {
			return err
		}
	}
	out, err := writableList(c, l)
	if err != nil {
		return err
	}
	setList(c, out)
	return out.resize(c, last)
}

// setZeros sets an output to zeros, which a place is that nobody has set.
func setZeros(c *graph.Context, i int, dtype tensor.DType, of partialShape) error {
	if dtype == tensor.Variant {
		return refused("an element of a list of lists that nobody has set")
	}
	shape, err := newShape(of.dims)
	if err != nil {
		return err
	}
	m, err := newMover(c, i, dtype, shape)
	if err != nil {
		return err
	}
	m.clear()
	return m.done(nil)
}

func listGetItem(c *graph.Context) error {
	l, err := listAt(c)
	if err != nil {
		return err
	}
	i, err := scalarAt(c, 1)
	if err != nil {
		return err
	}
	if i < 0 || i >= len(l.elements) {
		return invalid("Trying to access element %d in a list with %d elements.", i, len(l.elements))
	}
	if v := l.elements[i]; !empty(v) {
		c.Outputs[0] = v.Retain()
		return nil
	}
	said, err := elementShape(c, 2)
	if err != nil {
		return err
	}
	shape, err := said.merged(l.shape)
	if err == nil && !shape.known() {
		shape, err = l.mergedAll(shape)
	}
	if err != nil {
		return err
	}
	if !shape.known() {
		return invalid("Trying to read an uninitialized tensor but element_shape is not fully defined: %s and no list element is set.", shape)
	}
	return setZeros(c, 0, l.dtype, shape)
}

func listSetItem(c *graph.Context) error {
	l, err := listAt(c)
	if err != nil {
		return err
	}
	i, err := scalarAt(c, 1)
	if err != nil {
		return err
	}
	grow := c.Node.Bool("resize_if_index_out_of_bounds")
	if i < 0 || i >= len(l.elements) && !grow {
		return invalid("Trying to modify element %d in a list with %d elements.", i, len(l.elements))
	}
	if shape, ok := l.fits(c.Inputs[2]); !ok {
		return invalid("Tried to set a tensor with incompatible shape at a list index. Item element shape: %s list shape: %s", shape, l.shape)
	}
	out, err := writableList(c, l)
	if err != nil {
		return err
	}
	setList(c, out)
	if i >= len(out.elements) {
		if err := out.resize(c, i+1); err != nil {
			return err
		}
	}
	return out.put(c, i, c.Inputs[2])
}

func listStack(c *graph.Context) error {
	l, err := listAt(c)
	if err != nil {
		return err
	}
	if n := c.Node.Int("num_elements"); n != -1 && n != int64(len(l.elements)) {
		return invalid("Operation expected a list with %d elements but got a list with %d elements.", n, len(l.elements))
	}
	said, err := elementShape(c, 1)
	if err != nil {
		return err
	}
	shape, err := said.merged(l.shape)
	if err != nil {
		return err
	}
	if !shape.known() && len(l.elements) == 0 {
		return invalid("Tried to stack elements of an empty list with non-fully-defined element_shape: %s", shape)
	}
	if shape, err = l.mergedAll(shape); err != nil {
		return err
	}
	if !shape.known() {
		return invalid("Tried to stack list which only contains uninitialized tensors and has a non-fully-defined element_shape: %s", shape)
	}
	out, err := newShape(shape.batch(int64(len(l.elements))).dims)
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, l.dtype, out)
	if err != nil {
		return err
	}
	if l.set < len(l.elements) {
		m.clear()
	}
	if n := product64(shape.dims); n > 0 {
		for i, v := range l.elements {
			if v.Tensor != nil {
				m.copy(int64(i)*n, v.Tensor, 0, n)
			}
		}
	}
	return m.done(nil)
}

func listLength(c *graph.Context) error {
	l, err := listAt(c)
	if err != nil {
		return err
	}
	out, err := scalarTensor(c, int32(len(l.elements))) //nolint:gosec // an index is an int32
	if err == nil {
		c.Set(0, out)
	}
	return err
}

func newListElementShape(n *graph.Node, _ *State) (graph.Kernel, error) {
	dtype := n.Type("shape_type")
	return graph.KernelFunc(func(c *graph.Context) error {
		l, err := listAt(c)
		if err != nil {
			return err
		}
		if l.shape.any {
			return setInts(c, 0, dtype, tensor.Shape{}, []int64{-1})
		}
		return setInts(c, 0, dtype, tensor.Vector(len(l.shape.dims)), l.shape.dims)
	}), nil
}
