package ops

import (
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

func variableOps() []entry {
	const variable = `() -> (ref: Ref(dtype)); shape: shape; dtype: type; container: string = ""; shared_name: string = ""; stateful`
	const update = `(ref: Ref(T), value: T) -> (output_ref: Ref(T)); T: number; use_locking: bool = false`
	const resourceUpdate = `(resource: resource, value: dtype); dtype: type; stateful`
	return []entry{
		{`VariableV2` + variable, newVariable},
		{`Variable` + variable, newVariable},
		{`IsVariableInitialized(ref: Ref(dtype)) -> (is_initialized: bool); dtype: type; uninitialized`, always(isInitialized)},
		{`Assign(ref: Ref(T), value: T) -> (output_ref: Ref(T)); T: type; validate_shape: bool = true; ` +
			`use_locking: bool = true; uninitialized`, newAssign},
		{`AssignAdd` + update, newAssignUpdate("T", "Add")},
		{`AssignSub` + update, newAssignUpdate("T", "Sub")},

		{`VarHandleOp() -> (resource: resource); container: string = ""; shared_name: string = ""; ` +
			`debug_name: string = ""; dtype: type; shape: shape; allowed_devices: list(string) = []; stateful`, newVarHandle},
		{`_VarHandlesOp() -> (resources: N*resource); containers: list(string); shared_names: list(string); N: int >= 0; ` +
			`dtypes: list(type); shapes: list(shape); stateful`, newVarHandles},
		{`ReadVariableOp(resource: resource) -> (value: dtype); dtype: type; stateful`, always(readVariable)},
		{`_ReadVariablesOp(resources: N*resource) -> (values: dtypes); N: int >= 0; dtypes: list(type); stateful`,
			always(readVariable)},
		{`AssignVariableOp(resource: resource, value: dtype); dtype: type; validate_shape: bool = false; stateful`,
			newAssignVariable},
		{`AssignAddVariableOp` + resourceUpdate, newAssignUpdate("dtype", "Add")},
		{`AssignSubVariableOp` + resourceUpdate, newAssignUpdate("dtype", "Sub")},
		{`VarIsInitializedOp(resource: resource) -> (is_initialized: bool); stateful`, always(isInitialized)},
		{`VariableShape(input: resource) -> (output: out_type); out_type: {int32, int64} = int32; stateful`, newVariableShape},
		{`DestroyResourceOp(resource: resource); ignore_lookup_error: bool = true; stateful`, newDestroyResource},
	}
}

// variable is a variable in a container.
type variable struct {
	location
	v *graph.Variable
}

func (v *variable) drop() { v.v.Drop() }

// Retain implements graph.Opaque. The container owns the variable, and its handles do not count.
func (v *variable) Retain() {}

// Release implements graph.Opaque.
func (v *variable) Release() {}

// variableKernel is VariableV2 and VarHandleOp.
type variableKernel struct {
	state     *State
	container string
	key       resourceName
	dtype     tensor.DType
	handle    bool
}

// The kinds of variables. A name in the container belongs to one of each kind.
const (
	legacyKind   = "N10tensorflow9LegacyVarE" // the names that TensorFlow's error texts have
	resourceKind = "N10tensorflow3VarE"
)

func newVariable(n *graph.Node, s *State) (graph.Kernel, error) {
	if d := n.Type("dtype"); !movable(d) {
		return nil, noType("dtype", d)
	}
	return &variableKernel{
		state: s, container: n.Text("container"), key: resourceName{legacyKind, nameOf(n)}, dtype: n.Type("dtype"),
	}, nil
}

func newVarHandle(n *graph.Node, s *State) (graph.Kernel, error) {
	if d := n.Type("dtype"); !movable(d) {
		return nil, noType("dtype", d)
	}
	return &variableKernel{
		state: s, container: n.Text("container"), key: resourceName{resourceKind, nameOf(n)}, dtype: n.Type("dtype"), handle: true,
	}, nil
}

// Compute implements graph.Kernel. The variable is looked up each time, since a reset of the
// container may have removed the one of the last step.
func (k *variableKernel) Compute(c *graph.Context) error {
	v, err := k.find()
	if err != nil {
		return err
	}
	// A handle may be of a variable of another type; who uses it says so. Code and text are TensorFlow's.
	if !k.handle && v.v.DType != k.dtype {
		return status.Errorf(status.Internal, "Output 0 of type %s_ref does not match declared output type %s_ref for node {{node %s}}",
			v.v.DType, k.dtype, c.Node.Name)
	}
	if k.handle {
		c.Outputs[0] = graph.Value{Opaque: v}
	} else {
		c.Outputs[0] = graph.Value{Var: v.v}
	}
	return nil
}

func (k *variableKernel) find() (*variable, error) {
	r, err := k.state.find(k.container, k.key, func() (resource, error) {
		return &variable{
			location: location{k.state.resources, k.container, k.key}, v: &graph.Variable{DType: k.dtype, Name: k.key.name},
		}, nil
	})
	if err != nil {
		return nil, err
	}
	v, ok := r.(*variable)
	if !ok {
		return nil, status.Errorf(status.Internal, "the variable %q is a %T", k.key.name, r)
	}
	return v, nil
}

type varHandles []*variableKernel

func newVarHandles(n *graph.Node, s *State) (graph.Kernel, error) {
	list := n.Attr("shared_names").GetList().GetS()
	containers := n.Attr("containers").GetList().GetS()
	types := n.Types("dtypes")
	if len(list) != len(n.OutTypes) || len(containers) != len(list) || len(types) != len(list) {
		return nil, invalid("%d outputs, but %d shared_names, %d containers and %d dtypes",
			len(n.OutTypes), len(list), len(containers), len(types))
	}
	var k varHandles
	for i, name := range list {
		k = append(k, &variableKernel{
			state: s, container: string(containers[i]), key: resourceName{resourceKind, string(name)}, dtype: types[i], handle: true,
		})
	}
	return k, nil
}

// Compute implements graph.Kernel.
func (k varHandles) Compute(c *graph.Context) error {
	for i, h := range k {
		v, err := h.find()
		if err != nil {
			return err
		}
		c.Outputs[i] = graph.Value{Opaque: v}
	}
	return nil
}

// variableAt returns the variable of input i, a reference or a resource.
func variableAt(c *graph.Context, i int) (*graph.Variable, error) {
	if v := c.Inputs[i].Var; v != nil {
		return v, nil
	}
	if v, ok := c.Inputs[i].Opaque.(*variable); ok {
		return v.v, nil
	}
	return nil, invalid("%s is not a variable", argName(c, i))
}

// uninitialised is the error of a variable without a value, with TensorFlow's texts.
func uninitialised(c *graph.Context, i int) error {
	if v, ok := c.Inputs[i].Opaque.(*variable); ok {
		container := v.container
		if container == "" {
			container = defaultContainer
		}
		return status.Errorf(status.FailedPrecondition, "Could not find variable %[1]s. This could mean that the variable has been "+
			"deleted. In TF1, it can also mean the variable is uninitialized. Debug info: container=%[2]s, status error "+
			"message=Resource %[2]s/%[1]s/%[3]s does not exist.", v.key.name, container, resourceKind)
	}
	return status.Errorf(status.FailedPrecondition, "Attempting to use uninitialized value %s", c.Inputs[i].Var.Name)
}

// snapshotAt returns the value of the variable of input i, with a reference for the caller.
func snapshotAt(c *graph.Context, i int, dtype tensor.DType) (*tensor.Tensor, error) {
	v, err := variableAt(c, i)
	if err != nil {
		return nil, err
	}
	t := v.Snapshot()
	if t == nil {
		return nil, uninitialised(c, i)
	}
	if dtype != tensor.Invalid && t.DType() != dtype {
		t.Release()
		return nil, invalid("Trying to read variable with wrong dtype. Expected %s got %s", dtype, v.DType)
	}
	return t, nil
}

// updateOutput sets the output of an update of a reference: the reference itself.
func updateOutput(c *graph.Context) {
	if len(c.Outputs) > 0 {
		c.Forward(0, 0)
	}
}

func isInitialized(c *graph.Context) error {
	v, err := variableAt(c, 0)
	if err != nil {
		return err
	}
	t := v.Snapshot()
	if t != nil {
		t.Release()
	}
	out, err := scalarTensor(c, t != nil)
	if err == nil {
		c.Set(0, out)
	}
	return err
}

func readVariable(c *graph.Context) error {
	if len(c.Inputs) != len(c.Outputs) {
		return invalid("%d resources, but %d dtypes", len(c.Inputs), len(c.Outputs))
	}
	for i := range c.Outputs {
		t, err := snapshotAt(c, i, c.Node.OutTypes[i])
		if err != nil {
			return err
		}
		c.Set(i, t)
	}
	return nil
}

// assign makes value the tensor of variable v. It copies nothing: both share the memory, and a later
// update of the variable makes its copy. another is the error for a value of another shape than the present one, if that is
// refused.
func assign(v *graph.Variable, value *tensor.Tensor, another func(old, value tensor.Shape) error) error {
	if v.DType != value.DType() {
		return invalid("Trying to assign variable with wrong dtype. Expected %s got %s", v.DType, value.DType())
	}
	return v.Update(func(old *tensor.Tensor) (*tensor.Tensor, error) {
		if old != nil {
			if another != nil && !old.Shape().Equal(value.Shape()) {
				return nil, another(old.Shape(), value.Shape())
			}
			old.Release()
		}
		return value.Retain(), nil
	})
}

// newAssign makes the kernel of Assign. TensorFlow compares the value with the shape attribute of the
// variable, which the present value has; the first value is compared in the kernel of a variable
// with a known shape.
func newAssign(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("T"); !movable(d) {
		return nil, noType("T", d)
	}
	var another func(old, value tensor.Shape) error
	if n.Bool("validate_shape") {
		another = func(old, value tensor.Shape) error {
			return invalid("Assign requires shapes of both tensors to match. lhs shape= %s rhs shape= %s", old, value)
		}
	}
	declared, known := declaredShape(n)
	return graph.KernelFunc(func(c *graph.Context) error {
		v, err := variableAt(c, 0)
		if err != nil {
			return err
		}
		if another != nil && known && !c.Input(1).Shape().Equal(declared) {
			return another(declared, c.Input(1).Shape())
		}
		if err := assign(v, c.Input(1), another); err != nil {
			return err
		}
		updateOutput(c)
		return nil
	}), nil
}

// declaredShape returns the shape attribute of the variable that input 0 of a node comes from.
func declaredShape(n *graph.Node) (tensor.Shape, bool) {
	if len(n.In) == 0 || n.In[0].Node == nil || (n.In[0].Node.Op != "VariableV2" && n.In[0].Node.Op != "Variable") {
		return tensor.Shape{}, false
	}
	dims, known := n.In[0].Node.Shape("shape")
	if !known {
		return tensor.Shape{}, false
	}
	shape, err := tensor.NewShape(dims...)
	return shape, err == nil // −1 is refused, and is not known
}

func newAssignVariable(n *graph.Node, _ *State) (graph.Kernel, error) {
	if d := n.Type("dtype"); !movable(d) {
		return nil, noType("dtype", d)
	}
	var another func(old, value tensor.Shape) error
	if n.Bool("validate_shape") {
		another = func(old, value tensor.Shape) error {
			return invalid("Trying to assign to variable with tensor with wrong shape. Expected %s got %s", old, value)
		}
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		v, err := variableAt(c, 0)
		if err != nil {
			return err
		}
		return assign(v, c.Input(1), another)
	}), nil
}

// writeVariables changes variables and slots in place. check gets the present tensors, which must not
// be changed. write gets tensors with the same content that belong to it. They may be those of the
// variables, so after an error or a panic of write the variables may be changed in part.
func writeVariables(c *graph.Context, inputs []int, check func(old []*tensor.Tensor) error,
	write func(t []*tensor.Tensor) error) error {
	vars := make([]*graph.Variable, len(inputs))
	for i, in := range inputs {
		var err error
		if vars[i], err = variableAt(c, in); err != nil {
			return err
		}
	}
	return graph.UpdateAll(vars, func(old []*tensor.Tensor) ([]*tensor.Tensor, error) {
		for i, t := range old {
			if t == nil {
				return nil, uninitialised(c, inputs[i])
			}
		}
		if err := check(old); err != nil {
			return nil, err
		}
		changed, release, err := writableCopies(c, old)
		if err != nil {
			return nil, err
		}
		written := false
		defer func() { // write may panic, too
			if !written {
				release()
			}
		}()
		if err := write(changed); err != nil {
			return nil, err
		}
		written = true
		for i, t := range changed {
			if t != old[i] {
				old[i].Release()
			}
		}
		return changed, nil
	})
}

// writableCopies returns the tensors themselves where nobody else reads them, and copies of others.
// release releases the copies.
func writableCopies(c *graph.Context, old []*tensor.Tensor) (changed []*tensor.Tensor, release func(), err error) {
	changed = make([]*tensor.Tensor, len(old))
	release = func() {
		for i, t := range changed {
			if t != nil && t != old[i] {
				t.Release()
			}
		}
	}
	for i, t := range old {
		if writable(t) {
			changed[i] = t
		} else if changed[i], err = t.Clone(c.Step.Allocator); err != nil {
			release()
			return nil, nil, err
		}
	}
	return changed, release, nil
}

// newAssignUpdate makes the kernels of AssignAdd and its kin: variable = variable op value.
func newAssignUpdate(attr, op string) NewFunc {
	return func(n *graph.Node, _ *State) (graph.Kernel, error) {
		f, err := vectorFunc(op, n.Type(attr))
		if err != nil {
			return nil, err
		}
		return graph.KernelFunc(func(c *graph.Context) error {
			value := c.Input(1)
			check := func(old []*tensor.Tensor) error {
				switch t := old[0]; {
				case t.Shape().Equal(value.Shape()) && t.DType() == value.DType():
					return nil
				case c.Inputs[0].Var != nil:
					return invalid("Parameters and update must be the same size")
				default:
					return invalid("Cannot update variable with shape %s using a Tensor with shape %s, shapes must be equal.", t.Shape(), value.Shape())
				}
			}
			err := writeVariables(c, []int{0}, check, func(t []*tensor.Tensor) error { return f(t[0], t[0], value) })
			if err == nil {
				updateOutput(c)
			}
			return err
		}), nil
	}
}

func newVariableShape(n *graph.Node, _ *State) (graph.Kernel, error) {
	dtype := n.Type("out_type")
	return graph.KernelFunc(func(c *graph.Context) error {
		t, err := snapshotAt(c, 0, tensor.Invalid)
		if err != nil {
			return err
		}
		defer t.Release()
		return setShape(c, 0, dtype, t.Shape())
	}), nil
}

// setShape sets output i to the extents of a shape, as int32 or int64.
func setShape(c *graph.Context, i int, dtype tensor.DType, shape tensor.Shape) error {
	return setInts(c, i, dtype, tensor.Vector(shape.Rank()), shape.Dims())
}

// setInts sets output i to a tensor of int32 or int64 with the given elements.
func setInts(c *graph.Context, i int, dtype tensor.DType, shape tensor.Shape, values []int64) error {
	if dtype == tensor.Int64 {
		out, err := setOutput[int64](c, i, shape)
		copy(out, values)
		return err
	}
	out, err := setOutput[int32](c, i, shape)
	for j := range out {
		if values[j] != int64(int32(values[j])) {
			return invalid("output %d is of the type int32, which does not hold %d", i, values[j])
		}
		out[j] = int32(values[j])
	}
	return err
}

func newDestroyResource(n *graph.Node, _ *State) (graph.Kernel, error) {
	ignore := n.Bool("ignore_lookup_error")
	return graph.KernelFunc(func(c *graph.Context) error {
		r, ok := c.Inputs[0].Opaque.(interface{ at() *location })
		if !ok {
			return invalid("resource is not a variable, a queue, an accumulator or a lookup table")
		}
		if p := r.at(); !p.remove() && !ignore {
			return status.Errorf(status.NotFound, "Resource %s/%s does not exist.", p.container, p.key.name)
		}
		return nil
	}), nil
}
