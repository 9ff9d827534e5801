package ops

import (
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func tensorArrayOps() []entry {
	return []entry{
		{`TensorArrayV3(size: int32) -> (handle: resource, flow: float); dtype: type; element_shape: shape = ?; dynamic_size: bool = false; ` +
			`clear_after_read: bool = true; identical_element_shapes: bool = false; tensor_array_name: string = ""; stateful`, newTensorArray},
		{`TensorArrayGradV3(handle: resource, flow_in: float) -> (grad_handle: resource, flow_out: float); source: string; stateful`,
			newTensorArrayGrad},
		{`TensorArrayGradWithShape(handle: resource, flow_in: float, shape_to_prepend: int32) -> (grad_handle: resource, flow_out: float); ` +
			`source: string; stateful`, newTensorArrayGrad},
		{`TensorArrayWriteV3(handle: resource, index: int32, value: T, flow_in: float) -> (flow_out: float); T: type; stateful`,
			moving("T", tensorArrayWrite)},
		{`TensorArrayReadV3(handle: resource, index: int32, flow_in: float) -> (value: dtype); dtype: type; stateful`,
			moving("dtype", tensorArrayRead)},
		{`TensorArrayGatherV3(handle: resource, indices: int32, flow_in: float) -> (value: dtype); dtype: type; element_shape: shape = ?; stateful`,
			moving("dtype", tensorArrayGather)},
		{`TensorArrayScatterV3(handle: resource, indices: int32, value: T, flow_in: float) -> (flow_out: float); T: type; stateful`,
			moving("T", tensorArrayScatter)},
		{`TensorArrayConcatV3(handle: resource, flow_in: float) -> (value: dtype, lengths: int64); dtype: type; ` +
			`element_shape_except0: shape = ?; stateful`, moving("dtype", tensorArrayConcat)},
		{`TensorArraySplitV3(handle: resource, value: T, lengths: int64, flow_in: float) -> (flow_out: float); T: type; stateful`,
			moving("T", tensorArraySplit)},
		{`TensorArraySizeV3(handle: resource, flow_in: float) -> (size: int32); stateful`, always(tensorArraySize)},
		{`TensorArrayCloseV3(handle: resource); stateful`, always(tensorArrayClose)},
	}
}

func newTensorArray(n *graph.Node, s *State) (graph.Kernel, error) {
	config := tensorArrayConfig{
		dtype: n.Type("dtype"), dynamic: n.Bool("dynamic_size"), clear: n.Bool("clear_after_read"), identical: n.Bool("identical_element_shapes"),
	}
	if !movable(config.dtype) {
		return nil, noType("dtype", config.dtype)
	}
	name, shape := nameIn(n, "tensor_array_name"), partialOf(n.Attr("element_shape").GetShape())
	return graph.KernelFunc(func(c *graph.Context) error {
		size, err := sizeOf(c, "TensorArray size must be scalar")
		if err != nil {
			return err
		}
		if size < 0 {
			return invalid("Size should be >= 0.")
		}
		k := &tensorArray{tensorArrayConfig: config, shape: shape}
		if err := k.begin(c, s.numbered(name), k.close); err != nil {
			return err
		}
		if err := k.grow(c.Step.Allocator, int(size)); err != nil {
			k.Release()
			return err
		}
		return setHandle(c, k)
	}), nil
}

// setHandle sets output 0 to an array, whose reference it takes over, and output 1 to a flow. A flow is an edge that orders the ops
// of an array; its value means nothing.
func setHandle(c *graph.Context, k *tensorArray) error {
	c.Outputs[0] = graph.Value{Opaque: k}
	flow, err := scalarTensor(c, float32(0))
	if err == nil {
		c.Set(1, flow)
	}
	return err
}

// tensorArrayAt returns the array of input 0.
func tensorArrayAt(c *graph.Context) (*tensorArray, error) {
	k, ok := c.Inputs[0].Opaque.(*tensorArray)
	if !ok {
		return nil, invalid("%s is not a TensorArray", argName(c, 0))
	}
	return k, nil
}

func newTensorArrayGrad(n *graph.Node, _ *State) (graph.Kernel, error) {
	source := n.Text("source")
	return graph.KernelFunc(func(c *graph.Context) error {
		k, err := tensorArrayAt(c)
		if err != nil {
			return err
		}
		var prepend []int64
		if len(c.Inputs) > 2 {
			shape, err := shapeOf(c, 2)
			if err != nil {
				return err
			}
			prepend = shape.Dims()
		}
		g, err := k.gradient(c, source, prepend)
		if err != nil {
			return err
		}
		return setHandle(c, g)
	}), nil
}

// indexOf returns input 1, the index of a place.
func indexOf(c *graph.Context) (int32, error) {
	v, err := inputOf[int32](c, 1)
	if err != nil {
		return 0, err
	}
	if s := c.Input(1).Shape(); s.Rank() != 0 {
		return 0, invalid("TensorArray index must be scalar, but had shape: %s", s)
	}
	return v[0], nil
}

// indicesOf returns input 1, the indices of places; never nil.
func indicesOf(c *graph.Context) ([]int32, error) {
	v, err := inputOf[int32](c, 1)
	if err != nil {
		return nil, err
	}
	if s := c.Input(1).Shape(); s.Rank() != 1 {
		return nil, invalid("Expected indices to be a vector, but received shape: %s", s)
	}
	if v == nil {
		v = []int32{}
	}
	return v, nil
}

func tensorArrayWrite(c *graph.Context) error {
	index, err := indexOf(c)
	if err != nil {
		return err
	}
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	t := c.Input(2)
	if t.DType() != k.dtype {
		return k.otherType("is trying to write", t.DType())
	}
	if err := k.write(c, index, t); err != nil {
		return err
	}
	c.Forward(0, 3)
	return nil
}

func (k *tensorArray) write(c *graph.Context, index int32, t *tensor.Tensor) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.put(c, index, t)
}

func tensorArrayRead(c *graph.Context) error {
	index, err := indexOf(c)
	if err != nil {
		return err
	}
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	if want := c.Node.Type("dtype"); want != k.dtype {
		return k.otherType("requested", want)
	}
	list, err := k.getMany(c, []int32{index})
	if err == nil {
		c.Set(0, list[0])
	}
	return err
}

func tensorArrayGather(c *graph.Context) error {
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	indices, err := indicesOf(c)
	if err != nil {
		return err
	}
	if want := c.Node.Type("dtype"); want != k.dtype {
		return k.otherType("requested", want)
	}
	declared := partialOf(c.Node.Attr("element_shape").GetShape())
	if err := k.merge(declared); err != nil {
		return err
	}
	if len(indices) == 0 {
		if !declared.known() {
			return status.Errorf(status.Unimplemented, "TensorArray has size zero, but element shape %s is not fully defined. "+
				"Currently only static shapes are supported when packing zero-size TensorArrays.", declared)
		}
		return setRows(c, nil, k.dtype, declared.batch(0).dims)
	}
	list, err := k.getMany(c, indices)
	if err != nil {
		return err
	}
	defer releaseTensors(list)
	first := list[0].Shape()
	if !declared.fits(first) {
		return invalid("TensorArray was passed element_shape %s which does not match the Tensor at index 0: %s", declared, first)
	}
	for i, t := range list {
		if !t.Shape().Equal(first) {
			return invalid("TensorArray has inconsistent shapes.  Index 0 has shape: %s but index %d has shape: %s", first, i, t.Shape())
		}
	}
	return setRows(c, list, k.dtype, append([]int64{int64(len(list))}, first.Dims()...))
}

// setRows sets output 0 to the elements of all tensors, one after another.
func setRows(c *graph.Context, list []*tensor.Tensor, dtype tensor.DType, dims []int64) error {
	shape, err := newShape(dims)
	if err != nil {
		return err
	}
	m, err := newMover(c, 0, dtype, shape)
	if err != nil {
		return err
	}
	at := int64(0)
	for _, t := range list {
		n := t.Shape().Elements()
		if n > 0 {
			m.copy(at, t, 0, n)
		}
		at += n
	}
	return m.done(nil)
}

func tensorArrayConcat(c *graph.Context) error {
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	if want := c.Node.Type("dtype"); want != k.dtype {
		return k.otherType("requested", want)
	}
	size, err := k.size()
	if err != nil {
		return err
	}
	declared := partialOf(c.Node.Attr("element_shape_except0").GetShape())
	if size == 0 {
		if !declared.known() {
			return status.Errorf(status.Unimplemented, "TensorArray has size zero, but element_shape_except0 %s is not fully defined. "+
				"Currently only static shapes are supported when concatenating zero-size TensorArrays.", declared)
		}
		if err := setInts(c, 1, tensor.Int64, tensor.Vector(0), nil); err != nil {
			return err
		}
		return setRows(c, nil, k.dtype, declared.batch(0).dims)
	}
	list, err := k.getMany(c, nil)
	if err != nil {
		return err
	}
	defer releaseTensors(list)
	lengths, err := setOutput[int64](c, 1, tensor.Vector(len(list)))
	if err != nil {
		return err
	}
	var inner partialShape
	rows := int64(0)
	for i, t := range list {
		if t.Shape().Rank() == 0 {
			return invalid("Concat saw a scalar shape at index %d but requires at least vectors.  Did you mean to call pack?", i)
		}
		rest := partialShape{dims: t.Shape().Dims()[1:]}
		switch {
		case i > 0 && (len(rest.dims) != len(inner.dims) || !rest.compatible(inner)):
			return invalid("TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: %s but index %d has (excepting dimension 0) shape: %s",
				inner, i, rest)
		case i == 0 && !declared.compatible(rest):
			return invalid("TensorArray was passed element_shape_except0 %s but index 0 has (excepting dimension 0) shape: %s which does not match.", declared, rest)
		}
		inner, lengths[i] = rest, t.Shape().Dim(0)
		if rows, err = sumOf(rows, lengths[i]); err != nil {
			return err
		}
	}
	return setRows(c, list, k.dtype, inner.batch(rows).dims)
}

func tensorArrayScatter(c *graph.Context) error {
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	t := c.Input(2)
	shape := t.Shape()
	if t.DType() != k.dtype {
		return k.otherType("is trying to write", t.DType())
	}
	if shape.Rank() == 0 {
		return invalid("Input value for unpack must be at least a vector but received shape: %s", shape)
	}
	indices, err := indicesOf(c)
	if err != nil {
		return err
	}
	if int64(len(indices)) != shape.Dim(0) {
		return invalid("Expected len(indices) == values.shape[0], but saw: %d vs. %d", len(indices), shape.Dim(0))
	}
	largest := int32(-1)
	for _, i := range indices {
		largest = max(largest, i)
	}
	size, err := k.resizable(int(largest) + 1)
	if err != nil {
		return err
	}
	if int(largest) >= size {
		return invalid("Max scatter index must be < array size (%d vs. %d)", largest, size)
	}
	ends := func(i int) int64 { return int64(i + 1) }
	if err := k.writeParts(c, t, indices, shape.Dims()[1:], ends); err != nil {
		return err
	}
	c.Forward(0, 3)
	return nil
}

func tensorArraySplit(c *graph.Context) error {
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	lengths, err := inputOf[int64](c, 2)
	if err != nil {
		return err
	}
	t := c.Input(1)
	shape, total := t.Shape(), int64(0)
	if s := c.Input(2).Shape(); s.Rank() != 1 {
		return invalid("Expected lengths to be a vector, received shape: %s", s)
	}
	for _, n := range lengths {
		if total, err = sumOf(total, n); err != nil {
			return err // TensorFlow ends its process
		}
	}
	if shape.Rank() == 0 {
		return invalid("Expected value to be at least a vector, but received shape: %s", shape)
	}
	if total != shape.Dim(0) {
		return invalid("Expected sum of lengths to be equal to values.shape[0], but sum of lengths is %d and value's shape is: %s", total, shape)
	}
	size, err := k.resizable(len(lengths))
	if err != nil {
		return err
	}
	if size != len(lengths) {
		return invalid("TensorArray's size is not equal to the size of lengths (%d vs. %d), and the TensorArray is not marked as dynamically resizeable",
			size, len(lengths))
	}
	if t.DType() != k.dtype {
		return k.otherType("is trying to write", t.DType())
	}
	if err := c.Scratch(12 * int64(len(lengths))); err != nil {
		return err
	}
	indices, ends := make([]int32, len(lengths)), make([]int64, len(lengths))
	end := int64(0)
	for i, n := range lengths {
		end += n
		indices[i], ends[i] = int32(i), end //nolint:gosec // no array has more places
	}
	if err := k.writeParts(c, t, indices, nil, func(i int) int64 { return ends[i] }); err != nil {
		return err
	}
	c.Forward(0, 3)
	return nil
}

// writeParts writes copies of parts of t to places, the last one first, as TensorFlow does. ends says where part i ends in the
// first dimension; dims are the extents of each, or nil for those of t with another first one.
func (k *tensorArray) writeParts(c *graph.Context, t *tensor.Tensor, indices []int32, dims []int64, ends func(i int) int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, index := range slices.Backward(indices) {
		begin := int64(0)
		if i > 0 {
			begin = ends(i - 1)
		}
		d := dims
		if d == nil {
			d = t.Shape().Dims()
			d[0] = ends(i) - begin
		}
		part, err := partOf(c, t, begin, ends(i), d)
		if err != nil {
			return err
		}
		err = k.put(c, index, part)
		part.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

func tensorArraySize(c *graph.Context) error {
	k, err := tensorArrayAt(c)
	if err != nil {
		return err
	}
	size, err := k.size()
	if err != nil {
		return err
	}
	out, err := scalarTensor(c, int32(size)) //nolint:gosec // an index is an int32
	if err == nil {
		c.Set(0, out)
	}
	return err
}

func tensorArrayClose(c *graph.Context) error {
	k, err := tensorArrayAt(c)
	if err == nil {
		k.close()
	}
	return err
}
