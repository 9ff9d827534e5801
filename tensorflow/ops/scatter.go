package ops

import (
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// scatterOps change parts of variables and tensors.
func scatterOps() []entry {
	var entries []entry
	ops := []struct{ suffix, op, refTypes, locking string }{
		{"Update", "Update", "type", "true"}, {"Add", "Add", "number", "false"}, {"Sub", "Sub", "number", "false"},
		{"Mul", "Mul", "number", "false"}, {"Div", "Div", "number", "false"},
		{"Min", "Minimum", "{half, bfloat16, float, double, int32, int64}", "false"},
		{"Max", "Maximum", "{half, bfloat16, float, double, int32, int64}", "false"},
	}
	for _, o := range ops {
		types := o.refTypes
		if types != "type" {
			types = "number"
		}
		entries = append(entries,
			entry{`Scatter` + o.suffix + `(ref: Ref(T), indices: Tindices, updates: T) -> (output_ref: Ref(T)); T: ` + o.refTypes +
				`; Tindices: index; use_locking: bool = ` + o.locking, newScatter("T", o.op)},
			entry{`ResourceScatter` + o.suffix + `(resource: resource, indices: Tindices, updates: dtype); dtype: ` + types +
				`; Tindices: index; stateful`, newScatter("dtype", o.op)})
	}
	for _, o := range ops[:3] {
		entries = append(entries,
			entry{`ScatterNd` + o.suffix + `(ref: Ref(T), indices: Tindices, updates: T) -> (output_ref: Ref(T)); T: ` + o.refTypes +
				`; Tindices: index; use_locking: bool = ` + o.locking + `; bad_indices_policy: string = ""`, newScatterNd(o.op)},
			entry{`ResourceScatterNd` + o.suffix + `(ref: resource, indices: Tindices, updates: T); T: type; Tindices: index; ` +
				`use_locking: bool = true; bad_indices_policy: string = ""; stateful`, newScatterNd(o.op)})
	}
	return append(entries,
		entry{`ScatterNd(indices: Tindices, updates: T, shape: Tindices) -> (output: T); T: type; Tindices: {int16, int32, int64}; ` +
			`bad_indices_policy: string = ""`, newScatterZeros},
		entry{`TensorScatterUpdate(tensor: T, indices: Tindices, updates: T) -> (output: T); T: type; ` +
			`Tindices: {int16, int32, int64, uint16}; bad_indices_policy: string = ""`, newTensorScatter("Update")},
		entry{`TensorScatterAdd(tensor: T, indices: Tindices, updates: T) -> (output: T); T: type; Tindices: index; ` +
			`bad_indices_policy: string = ""`, newTensorScatter("Add")},
		entry{`TensorScatterSub(tensor: T, indices: Tindices, updates: T) -> (output: T); T: type; Tindices: index; ` +
			`bad_indices_policy: string = ""`, newTensorScatter("Sub")},
	)
}

// rowFunc prepares the change of parts of z by parts of y: the function it returns sets n elements of
// z from offset at to those that they make with n elements of y from offset off. A y of one element
// is used for all, if one says so.
type rowFunc func(z, y *tensor.Tensor, one bool) (func(at, off, n int64), error)

func findRowFunc(op string, d tensor.DType) (rowFunc, error) {
	if op == "Update" {
		if !d.Plain() {
			return nil, noType("T", d)
		}
		return updateRows, nil
	}
	k, err := findBinary(op, d)
	if err != nil {
		return nil, err
	}
	return k.rows, nil
}

func updateRows(z, y *tensor.Tensor, one bool) (func(at, off, n int64), error) {
	size := int64(z.DType().Size())
	dst, src := z.Bytes(), y.Bytes()
	return func(at, off, n int64) {
		if one {
			repeat(dst[at*size:(at+n)*size], src)
			return
		}
		copy(dst[at*size:(at+n)*size], src[off*size:(off+n)*size])
	}, nil
}

func (k *binaryKernel[T, R]) rows(z, y *tensor.Tensor, one bool) (func(at, off, n int64), error) {
	vz, err := tensor.Values[R](z)
	if err != nil {
		return nil, err
	}
	vx, err := tensor.Values[T](z)
	if err != nil {
		return nil, err
	}
	vy, err := tensor.Values[T](y)
	if err != nil {
		return nil, err
	}
	if k.check != nil {
		if err := k.check(vy); err != nil {
			return nil, err
		}
	}
	return func(at, off, n int64) {
		if one {
			k.vs(vz[at:at+n], vx[at:at+n], vy[0])
			return
		}
		k.vv(vz[at:at+n], vx[at:at+n], vy[off:off+n])
	}, nil
}

// newScatter makes the kernels that change rows of a variable.
func newScatter(attr, op string) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		f, err := findRowFunc(op, n.Type(attr))
		if err != nil {
			return nil, err
		}
		return graph.KernelFunc(func(c *graph.Context) error {
			index, err := intsOf(c, 1)
			if err != nil {
				return err
			}
			updates := c.Input(2)
			scalar := updates.Shape().Rank() == 0
			check := func(old []*tensor.Tensor) error { return checkScatter(c, old[0], index, scalar) }
			err = writeVariables(c, []int{0}, check, func(t []*tensor.Tensor) error {
				if len(index) == 0 || t[0].Shape().Elements() == 0 {
					return nil
				}
				set, err := f(t[0], updates, scalar)
				if err != nil {
					return err
				}
				width := t[0].Shape().Elements() / t[0].Shape().Dim(0)
				for i, row := range index {
					set(row*width, int64(i)*width, width)
				}
				return nil
			})
			if err == nil {
				updateOutput(c)
			}
			return err
		}), nil
	}
}

func checkScatter(c *graph.Context, t *tensor.Tensor, index []int64, scalar bool) error {
	is, us, s := c.Input(1).Shape(), c.Input(2).Shape(), t.Shape()
	if s.Rank() == 0 {
		return invalid("params must be at least 1-D, got shape %s", s)
	}
	if t.DType() != c.Input(2).DType() {
		return invalid("the variable is of the type %s, and updates of %s", t.DType(), c.Input(2).DType())
	}
	if !scalar {
		want, err := newShape(append(is.Dims(), s.Dims()[1:]...))
		if err != nil || !us.Equal(want) {
			return invalid("Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape %s, "+
				"indices.shape %s, params.shape %s", us, is, s)
		}
	}
	for i, row := range index {
		if row < 0 || row >= s.Dim(0) {
			return invalid("indices[%s] = %d is not in [0, %d)", place(is, int64(i)), row, s.Dim(0))
		}
	}
	return nil
}

// checkPolicy refuses what to do with wrong coordinates beside an error.
func checkPolicy(n *graph.Node) error {
	if policy := n.Text("bad_indices_policy"); policy != "" && policy != "DEFAULT" && policy != "ERROR" {
		return refused("bad_indices_policy = %q", policy)
	}
	if d := n.Type("Tindices"); d != tensor.Int32 && d != tensor.Int64 {
		return noType("Tindices", d)
	}
	return nil
}

// scatterSlices changes the parts of t that input i names by those of updates.
func scatterSlices(c *graph.Context, f rowFunc, t *tensor.Tensor, i int, updates *tensor.Tensor) error {
	s, err := checkSlices(c, t.Shape(), i, updates)
	if err != nil {
		return err
	}
	set, err := f(t, updates, false)
	if err != nil {
		return err
	}
	for j, off := range s.offsets {
		set(off, int64(j)*s.width, s.width)
	}
	return nil
}

func checkSlices(c *graph.Context, shape tensor.Shape, i int, updates *tensor.Tensor) (*parts, error) {
	s, err := newSlices(c, i, shape)
	if err != nil {
		return nil, err
	}
	want, err := newShape(append(append([]int64{}, s.outer...), s.inner...))
	if err != nil || !updates.Shape().Equal(want) {
		return nil, invalid("Must have updates.shape = indices.shape[:-1] + params.shape[indices.shape[-1]:], got updates.shape %s, "+
			"indices.shape %s, params.shape %s", updates.Shape(), c.Input(i).Shape(), shape)
	}
	return s, nil
}

func newScatterNd(op string) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		f, err := findRowFunc(op, n.Type("T"))
		if err == nil {
			err = checkPolicy(n)
		}
		if err != nil {
			return nil, err
		}
		return graph.KernelFunc(func(c *graph.Context) error {
			check := func(old []*tensor.Tensor) error {
				if old[0].DType() != c.Input(2).DType() {
					return invalid("the variable is of the type %s, and updates of %s", old[0].DType(), c.Input(2).DType())
				}
				_, err := checkSlices(c, old[0].Shape(), 1, c.Input(2))
				return err
			}
			err := writeVariables(c, []int{0}, check, func(t []*tensor.Tensor) error {
				return scatterSlices(c, f, t[0], 1, c.Input(2))
			})
			if err == nil {
				updateOutput(c)
			}
			return err
		}), nil
	}
}

// newScatterZeros makes the kernel of ScatterNd: updates to a tensor of zeros, added where they meet.
func newScatterZeros(n *graph.Node, _ *State) (graph.Kernel, error) {
	f, err := findRowFunc("Add", n.Type("T"))
	if err == nil {
		err = checkPolicy(n)
	}
	if err != nil {
		return nil, err
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		shape, err := shapeOf(c, 2)
		if err != nil {
			return err
		}
		t, err := c.Allocate(c.Input(1).DType(), shape)
		if err != nil {
			return err
		}
		clear(t.Bytes())
		c.Set(0, t)
		return scatterSlices(c, f, t, 0, c.Input(1))
	}), nil
}

func newTensorScatter(op string) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		f, err := findRowFunc(op, n.Type("T"))
		if err == nil {
			err = checkPolicy(n)
		}
		if err != nil {
			return nil, err
		}
		return graph.KernelFunc(func(c *graph.Context) error {
			t, err := c.Input(0).Clone(c.Step.Allocator)
			if err != nil {
				return err
			}
			c.Set(0, t)
			return scatterSlices(c, f, t, 1, c.Input(2))
		}), nil
	}
}
