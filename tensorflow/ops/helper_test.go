package ops

import (
	"fmt"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// bench runs single nodes of one session, without an executor.
type bench struct {
	t     testing.TB
	set   *Registry
	state graph.State
	step  *graph.Step
}

func newBench(t testing.TB) *bench {
	set := New()
	state, err := set.NewState()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(state.Close)
	r := rendezvous.NewIntraProcess(nil)
	t.Cleanup(r.Close)
	return &bench{t: t, set: set, state: state, step: &graph.Step{ID: 1, Allocator: tensor.Heap{}, Rendezvous: r}}
}

// attrs are the attributes of a node as Go values.
type attrs map[string]any

func attrValue(t testing.TB, v any) *tfpb.AttrValue {
	a := &tfpb.AttrValue{}
	switch v := v.(type) {
	case tensor.DType:
		a.Value = &tfpb.AttrValue_Type{Type: tfpb.DataType(v)}
	case int:
		a.Value = &tfpb.AttrValue_I{I: int64(v)}
	case int64:
		a.Value = &tfpb.AttrValue_I{I: v}
	case float64:
		a.Value = &tfpb.AttrValue_F{F: float32(v)}
	case bool:
		a.Value = &tfpb.AttrValue_B{B: v}
	case string:
		a.Value = &tfpb.AttrValue_S{S: []byte(v)}
	case []string:
		list := &tfpb.AttrValue_ListValue{}
		for _, s := range v {
			list.S = append(list.S, []byte(s))
		}
		a.Value = &tfpb.AttrValue_List{List: list}
	case []int:
		list := &tfpb.AttrValue_ListValue{}
		for _, i := range v {
			list.I = append(list.I, int64(i))
		}
		a.Value = &tfpb.AttrValue_List{List: list}
	case []tensor.DType:
		a = typeList(v)
	case [][]int64: // shapes; nil is one of unknown rank
		list := &tfpb.AttrValue_ListValue{}
		for _, dims := range v {
			s := &tfpb.TensorShapeProto{UnknownRank: dims == nil}
			for _, d := range dims {
				s.Dim = append(s.Dim, &tfpb.TensorShapeProto_Dim{Size: d})
			}
			list.Shape = append(list.Shape, s)
		}
		a.Value = &tfpb.AttrValue_List{List: list}
	case tensor.Shape:
		a.Value = &tfpb.AttrValue_Shape{Shape: tensorproto.ShapeToProto(v)}
	case *tensor.Tensor:
		p, err := tensorproto.ToProto(v)
		if err != nil {
			t.Fatal(err)
		}
		a.Value = &tfpb.AttrValue_Tensor{Tensor: p}
	default:
		t.Fatalf("an attribute of the Go type %T", v)
	}
	return a
}

// node returns a node as graph.Import makes it, with the attributes that follow from the inputs.
func (b *bench) node(name, op string, a attrs, inputs ...graph.Value) *graph.Node {
	b.t.Helper()
	def := b.set.OpDef(op)
	if def == nil {
		b.t.Fatalf("no op %s", op)
	}
	n := &graph.Node{Name: name, Op: op, OpDef: def, Def: &tfpb.NodeDef{Name: name, Op: op, Attr: map[string]*tfpb.AttrValue{}}}
	for _, d := range def.Attr {
		if v, ok := a[d.Name]; ok {
			n.Def.Attr[d.Name] = attrValue(b.t, v)
		} else if d.DefaultValue != nil {
			n.Def.Attr[d.Name] = d.DefaultValue
		}
	}
	b.infer(n, inputs)
	outs := 0
	for _, arg := range def.OutputArg {
		for _, d := range b.argTypes(n, arg) {
			if outs++; arg.IsRef {
				d += 100
			}
			n.OutTypes = append(n.OutTypes, d)
		}
	}
	return n
}

// infer sets the attributes that say the types and numbers of the inputs.
func (b *bench) infer(n *graph.Node, inputs []graph.Value) {
	i, lists := 0, 0
	for _, arg := range n.OpDef.InputArg {
		if arg.NumberAttr != "" || arg.TypeListAttr != "" {
			lists++
		}
	}
	for _, arg := range n.OpDef.InputArg {
		count := 1
		if arg.NumberAttr != "" || arg.TypeListAttr != "" {
			count = (len(inputs) - (len(n.OpDef.InputArg) - lists)) / lists
		}
		var types []tensor.DType
		for range count {
			if i >= len(inputs) {
				b.t.Fatalf("%s has more inputs than %d", n.Op, len(inputs))
			}
			d := tensor.Resource
			if v := inputs[i]; v.Tensor != nil {
				d = v.Tensor.DType()
			} else if v.Var != nil {
				d = v.Var.DType
			} else if _, ok := v.Opaque.(*tensorList); ok {
				d = tensor.Variant
			}
			types = append(types, d)
			n.InTypes = append(n.InTypes, d)
			i++
		}
		set := func(name string, v any) {
			if name != "" && n.Def.Attr[name] == nil {
				n.Def.Attr[name] = attrValue(b.t, v)
			}
		}
		set(arg.NumberAttr, count)
		if arg.TypeListAttr != "" {
			set(arg.TypeListAttr, types)
		} else if arg.TypeAttr != "" && len(types) > 0 {
			n.Def.Attr[arg.TypeAttr] = attrValue(b.t, types[0])
		}
	}
}

func (b *bench) argTypes(n *graph.Node, arg *tfpb.OpDef_ArgDef) []tensor.DType {
	if arg.TypeListAttr != "" {
		return n.Types(arg.TypeListAttr)
	}
	d := tensor.DType(arg.Type)
	if arg.TypeAttr != "" {
		d = n.Type(arg.TypeAttr)
	}
	count := int64(1)
	if arg.NumberAttr != "" {
		count = n.Int(arg.NumberAttr)
	}
	var types []tensor.DType
	for range count {
		types = append(types, d)
	}
	return types
}

// try makes the kernel of a node and runs it.
func (b *bench) try(n *graph.Node, inputs ...graph.Value) ([]graph.Value, error) {
	k, err := b.state.NewKernel(n)
	if err != nil {
		return nil, err
	}
	return b.compute(k, n, inputs...)
}

func (b *bench) compute(k graph.Kernel, n *graph.Node, inputs ...graph.Value) ([]graph.Value, error) {
	c := &graph.Context{Ctx: b.t.Context(), Step: b.step, Node: n, Outputs: make([]graph.Value, len(n.OutTypes))}
	for _, v := range inputs {
		c.Inputs = append(c.Inputs, v.Retain()) // so no test value is written to
		c.InDead = c.InDead || v.Dead
	}
	err := k.Compute(c)
	for _, v := range c.Inputs {
		v.Release()
	}
	return c.Outputs, err
}

// run is try for a node that must succeed.
func (b *bench) run(op string, a attrs, inputs ...graph.Value) []graph.Value {
	b.t.Helper()
	return b.runNamed(op, op, a, inputs...)
}

func (b *bench) runNamed(name, op string, a attrs, inputs ...graph.Value) []graph.Value {
	b.t.Helper()
	outs, err := b.try(b.node(name, op, a, inputs...), inputs...)
	if err != nil {
		b.t.Fatalf("%s: %v", op, err)
	}
	return outs
}

// fails returns the error of a node that must fail.
func (b *bench) fails(op string, a attrs, inputs ...graph.Value) error {
	b.t.Helper()
	_, err := b.try(b.node(op, op, a, inputs...), inputs...)
	if err == nil {
		b.t.Fatalf("%s: no error", op)
	}
	return err
}

// in returns a tensor of the given extents as an input; a scalar without extents and with one value.
func in[T tensor.Element](dims []int64, values ...T) graph.Value {
	shape, err := tensor.NewShape(dims...)
	if err != nil {
		panic(err) //nolint:forbidigo // a value in a test does not fit its shape
	}
	t, err := tensor.FromSlice(shape, values)
	if err != nil {
		panic(err) //nolint:forbidigo // a value in a test does not fit its shape
	}
	return graph.Value{Tensor: t}
}

func vec[T tensor.Element](values ...T) graph.Value {
	return in([]int64{int64(len(values))}, values...)
}

func scalar[T tensor.Element](v T) graph.Value { return in(nil, v) }

func text(dims []int64, values ...string) graph.Value {
	shape, err := tensor.NewShape(dims...)
	if err != nil {
		panic(err) //nolint:forbidigo // a value in a test does not fit its shape
	}
	t, err := tensor.FromStrings(shape, values)
	if err != nil {
		panic(err) //nolint:forbidigo // a value in a test does not fit its shape
	}
	return graph.Value{Tensor: t}
}

// show returns a tensor as text: "float[2]: 1 2".
func show(v graph.Value) string {
	if v.Dead {
		return "dead"
	}
	if v.Tensor == nil {
		return "no tensor"
	}
	return v.Tensor.String() + ": " + elements(v.Tensor)
}

func elements(t *tensor.Tensor) string {
	switch t.DType() {
	case tensor.Float16, tensor.BFloat16, tensor.Int8, tensor.Int16, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64:
		wide, err := tensor.Allocate(tensor.Heap{}, tensor.Float64, t.Shape())
		if err != nil {
			return err.Error()
		}
		cast, err := findCast(t.DType(), tensor.Float64)
		if err != nil {
			return err.Error()
		}
		if err := cast(wide, t); err != nil {
			return err.Error()
		}
		return plainly(wide, -1)
	case tensor.Complex64:
		v, err := tensor.Values[complex64](t)
		return fmt.Sprint(v, err)
	}
	return plainly(t, -1)
}

// want compares an output with its text.
func (b *bench) want(v graph.Value, text string) {
	b.t.Helper()
	if got := show(v); got != text {
		b.t.Errorf("got  %s\nwant %s", got, text)
	}
}

// plainly returns the first elements of a tensor as text, in one row and as Go writes them; a negative n means all.
func plainly(t *tensor.Tensor, n int) string {
	if t == nil {
		return "resource"
	}
	if n < 0 || n > maxSummary {
		n = maxSummary
	}
	var texts []string
	switch t.DType() {
	case tensor.String:
		texts = t.Elements()
	case tensor.Float32:
		texts = words[float32](t, n)
	case tensor.Float64:
		texts = words[float64](t, n)
	case tensor.Int32:
		texts = words[int32](t, n)
	case tensor.Int64:
		texts = words[int64](t, n)
	case tensor.Bool:
		texts = words[bool](t, n)
	default:
		return t.String()
	}
	more := ""
	if int64(n) < t.Shape().Elements() {
		more = "..."
	}
	return strings.Join(texts[:min(n, len(texts))], " ") + more
}

func words[T tensor.Element](t *tensor.Tensor, n int) []string {
	v, err := tensor.Values[T](t)
	if err != nil {
		return []string{err.Error()}
	}
	texts := make([]string, 0, min(n, len(v)))
	for _, x := range v[:min(n, len(v))] {
		texts = append(texts, fmt.Sprint(x))
	}
	return texts
}
