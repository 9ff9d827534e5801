package ops

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// FuzzKernels runs one node with attributes and inputs that its definition allows, and that are wrong in
// every other way: shapes that do not fit, indices out of range, extents that are huge or negative. A
// kernel ends with its outputs or with an error, and takes no more memory than the allocator gives.
func FuzzKernels(f *testing.F) {
	set := New()
	names := set.Ops()
	for i := range names {
		f.Add(uint16(i), uint64(1))
		f.Add(uint16(i), uint64(2))
	}
	f.Fuzz(func(t *testing.T, op uint16, seed uint64) {
		runRandom(t, set, names[int(op)%len(names)], seed)
	})
}

// TestKernelsEndWithAnErrorForWhatDoesNotFit is FuzzKernels for some seeds.
func TestKernelsEndWithAnErrorForWhatDoesNotFit(t *testing.T) {
	seeds := 400
	if testing.Short() {
		seeds = 100
	}
	set := New()
	ran := 0
	for _, op := range set.Ops() {
		for seed := range seeds {
			if runRandom(t, set, op, uint64(seed)) {
				ran++
			}
		}
	}
	if ran < len(set.Ops())*seeds/10 {
		t.Errorf("only %d runs succeeded", ran)
	}
}

// runRandom reports whether the kernel succeeded.
func runRandom(t *testing.T, set *Registry, op string, seed uint64) bool {
	if op == "_Recv" || op == "_HostRecv" {
		return false // would wait
	}
	r := rand.New(rand.NewPCG(seed, 1))
	b := &bench{t: t, set: set}
	var err error
	if b.state, err = set.NewState(); err != nil {
		t.Fatal(err)
	}
	defer b.state.Close()
	rv := rendezvous.NewIntraProcess(nil)
	defer rv.Close()
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 4 << 20, Keep: -1})
	b.step = &graph.Step{ID: 1, Allocator: pool, Rendezvous: rv}
	n, inputs := b.randomNode(r, op)
	if n == nil {
		return false
	}
	outs, err := b.try(n, inputs...)
	for _, v := range inputs {
		if v.Opaque != nil {
			v.Release() // of a step
		}
	}
	for i, v := range outs {
		if err == nil && !v.Dead && v.Tensor == nil && v.Var == nil && v.Opaque == nil {
			t.Errorf("%s, seed %d: no output %d", op, seed, i)
		}
		if err == nil && v.Tensor != nil && v.Tensor.DType() != n.OutTypes[i].Base() {
			t.Errorf("%s, seed %d: output %d is %s, want %s", op, seed, i, v.Tensor, n.OutTypes[i])
		}
		v.Release()
	}
	b.state.Close()
	rv.Close()
	if s := pool.Stats(); s.InUse != 0 {
		t.Errorf("%s, seed %d: %d bytes are not released", op, seed, s.InUse)
	}
	return err == nil
}

// randomNode returns a node with random attributes and the inputs for it.
func (b *bench) randomNode(r *rand.Rand, op string) (*graph.Node, []graph.Value) {
	def := b.set.OpDef(op)
	n := &graph.Node{Name: op, Op: op, OpDef: def, Def: &tfpb.NodeDef{Name: op, Op: op, Attr: map[string]*tfpb.AttrValue{}}}
	for _, a := range def.Attr {
		v := b.randomAttr(r, a)
		if a.DefaultValue != nil && (r.IntN(2) == 0 || v == nil) {
			v = a.DefaultValue
		}
		if v != nil {
			n.Def.Attr[a.Name] = v
		}
	}
	var inputs []graph.Value
	for _, arg := range def.InputArg {
		for _, d := range b.argTypes(n, arg) {
			v, ok := b.randomHandle(r, n, len(inputs))
			if !ok {
				v, ok = b.randomInput(r, d, arg.IsRef, len(inputs))
			}
			if !ok {
				return nil, nil
			}
			inputs = append(inputs, v)
			n.InTypes = append(n.InTypes, d)
		}
	}
	for _, arg := range def.OutputArg {
		for _, d := range b.argTypes(n, arg) {
			if arg.IsRef {
				d += 100
			}
			n.OutTypes = append(n.OutTypes, d)
		}
	}
	return n, inputs
}

// randomHandle returns the handle that input i of some ops is: mostly one that fits.
func (b *bench) randomHandle(r *rand.Rand, n *graph.Node, i int) (graph.Value, bool) {
	if i > 0 || r.IntN(8) == 0 {
		return graph.Value{}, false
	}
	version := ""
	if strings.HasSuffix(n.Op, "V2") {
		version = "V2"
	}
	typeOf := func(names ...string) tensor.DType {
		for _, name := range names {
			if n.Def.Attr[name] != nil && r.IntN(8) > 0 {
				return n.Type(name)
			}
		}
		return tensor.Int64
	}
	if strings.HasPrefix(n.Op, "LookupTable") || strings.HasPrefix(n.Op, "InitializeTable") {
		a := attrs{"key_dtype": typeOf("Tin", "Tkey", "Tkeys"), "value_dtype": typeOf("Tout", "Tval", "Tvalues"), "value_shape": tensor.Vector(2)}
		kinds := []string{"HashTable", "MutableHashTable", "MutableHashTableOfTensors"}
		return b.tried(b.node("handle", kinds[r.IntN(len(kinds))]+version, a))
	}
	int32s := func(v int32) graph.Value { return scalar(v) }
	switch {
	case strings.HasPrefix(n.Op, "StackP"), n.Op == "StackCloseV2":
		h, ok := b.tried(b.node("handle", "StackV2", attrs{"elem_type": typeOf("T", "elem_type")}, int32s(2)), int32s(2))
		if k, isStack := h.Opaque.(*stack); ok && isStack && r.IntN(2) == 0 {
			v, _ := b.randomInput(r, k.dtype, false, i)
			if err := k.push(b.step.Allocator, v.Tensor); err != nil {
				b.t.Error(err)
			}
		}
		return h, ok
	case strings.HasPrefix(n.Op, "TensorArray") && n.Op != "TensorArrayV3":
		a := attrs{"dtype": typeOf("T", "dtype"), "dynamic_size": r.IntN(2) == 0, "clear_after_read": r.IntN(2) == 0, "element_shape": tensor.Vector(2)}
		size := int32s(int32(r.IntN(4)))
		h, ok := b.tried(b.node("handle", "TensorArrayV3", a, size), size)
		k, isArray := h.Opaque.(*tensorArray)
		if !ok || !isArray {
			return h, ok
		}
		if r.IntN(2) == 0 {
			k.shape = partialShape{any: true}
		}
		for range r.IntN(3) {
			v, _ := b.randomInput(r, k.dtype, false, i)
			if err := k.write(&graph.Context{Step: b.step}, int32(r.IntN(3)), v.Tensor); err != nil {
				continue // another shape, or a place that does not exist or is written
			}
		}
		return h, true
	case strings.HasPrefix(n.Op, "TensorList") && n.Op != "TensorListReserve" && n.Op != "TensorListFromTensor":
		shape, count := vec[int32](2), int32s(int32(r.IntN(4)))
		if r.IntN(2) == 0 {
			shape = int32s(-1)
		}
		h, ok := b.tried(b.node("handle", "TensorListReserve", attrs{"element_dtype": typeOf("element_dtype")}, shape, count), shape, count)
		if l, isList := h.Opaque.(*tensorList); ok && isList && movable(l.dtype) && len(l.elements) > 0 {
			v, _ := b.randomInput(r, l.dtype, false, i)
			if err := l.put(&graph.Context{Step: b.step}, 0, v); err != nil {
				b.t.Error(err)
			}
		}
		return h, ok
	}
	return graph.Value{}, false
}

// tried returns the output of a node, if it succeeds.
func (b *bench) tried(n *graph.Node, inputs ...graph.Value) (graph.Value, bool) {
	outs, err := b.try(n, inputs...)
	if err != nil {
		return graph.Value{}, false
	}
	for _, v := range outs[1:] {
		v.Release()
	}
	return outs[0], true
}

func (b *bench) randomAttr(r *rand.Rand, a *tfpb.OpDef_AttrDef) *tfpb.AttrValue {
	types := []tensor.DType{tensor.Float32, tensor.Float64, tensor.Int32, tensor.Int64, tensor.String, tensor.Bool, tensor.Float16, tensor.Uint8}
	switch a.Type {
	case "type":
		if allowed := a.AllowedValues.GetList().GetType(); len(allowed) > 0 {
			if slices.Contains(allowed, tfpb.DataType_DT_FLOAT) && r.IntN(2) > 0 {
				return typeValue(tensor.Float32)
			}
			return typeValue(tensor.DType(allowed[r.IntN(len(allowed))]))
		}
		return typeValue(types[r.IntN(len(types))])
	case "list(type)":
		return typeList(types[:1+r.IntN(3)])
	case "int":
		least := max(a.Minimum, -3)
		if a.Minimum == 0 && a.HasMinimum {
			least = 0
		}
		return attrValue(b.t, least+int64(r.IntN(4)))
	case "bool":
		return attrValue(b.t, r.IntN(2) == 0)
	case "string":
		if allowed := a.AllowedValues.GetList().GetS(); len(allowed) > 0 {
			return attrValue(b.t, string(allowed[r.IntN(len(allowed))]))
		}
		return attrValue(b.t, "/job:a/replica:0/task:0/device:CPU:0")
	case "shape":
		return attrValue(b.t, tensor.Vector(r.IntN(3)))
	case "list(int)":
		return attrValue(b.t, []int{r.IntN(4) - 2})
	case "list(string)":
		return attrValue(b.t, []string{"BiasAdd", "Relu"}[:r.IntN(3)])
	case "tensor":
		return attrValue(b.t, vec[float32](1, 2).Tensor)
	}
	return nil
}

func (b *bench) randomInput(r *rand.Rand, d tensor.DType, ref bool, i int) (graph.Value, bool) {
	if d == tensor.Resource || ref {
		if d == tensor.Resource {
			d = tensor.Float32
		}
		value, ok := b.randomInput(r, d, false, i)
		if !ok {
			return graph.Value{}, false
		}
		op := map[bool]string{true: "VariableV2", false: "VarHandleOp"}[ref]
		v := b.runNamed(fmt.Sprint("v", i), op, attrs{"dtype": d, "shape": tensor.Shape{}})[0]
		if r.IntN(8) > 0 {
			w, err := variableAt(&graph.Context{Inputs: []graph.Value{v}}, 0)
			if err == nil {
				err = assign(w, value.Tensor, nil)
			}
			if err != nil {
				b.t.Fatal(err)
			}
		}
		return v, true
	}
	dims := [][]int64{{}, {2}, {3}, {2, 2}, {1}, {0}, {2, 3}, {1, 2, 2}, {0, 2}, {4}}[r.IntN(10)]
	shape, err := tensor.NewShape(dims...)
	if err != nil {
		return graph.Value{}, false
	}
	count := int(shape.Elements())
	if d == tensor.String {
		return text(dims, make([]string, count)...), true
	}
	wild := []int64{0, 1, 2, 0, 1, 1, -1, 3, 1 << 20, -1 << 31, 1<<31 - 1, 1 << 40, -1 << 63, 1<<63 - 1}
	ints := make([]int64, count)
	for j := range ints {
		ints[j] = wild[r.IntN(7)]
		if r.IntN(6) == 0 {
			ints[j] = wild[r.IntN(len(wild))]
		}
	}
	from := in(dims, ints...).Tensor
	if d == tensor.Int64 {
		return graph.Value{Tensor: from}, true
	}
	cast, err := findCast(tensor.Int64, d)
	if err != nil {
		return graph.Value{}, false
	}
	to, err := tensor.Allocate(tensor.Heap{}, d, shape)
	if err != nil {
		return graph.Value{}, false
	}
	return graph.Value{Tensor: to}, cast(to, from) == nil
}
