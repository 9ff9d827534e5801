package graph

import (
	"context"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// fakeSet is a small kernel set for the tests of this package.
type fakeSet struct {
	mu   sync.Mutex
	vars map[string]*Variable
	ops  map[string]fakeOp
}

type fakeOp struct {
	def    *tfpb.OpDef
	kernel func(n *Node) (Kernel, error)
}

func newFakeSet() *fakeSet {
	s := &fakeSet{vars: make(map[string]*Variable)}
	s.ops = fakeOps(s)
	return s
}

func (s *fakeSet) Name() string { return "go" }
func (s *fakeSet) OpDef(op string) *tfpb.OpDef {
	return s.ops[op].def
}
func (s *fakeSet) NewState() (State, error)         { return s, nil }
func (s *fakeSet) NewSession() State                { return s }
func (s *fakeSet) Rewrite(g *Graph) (*Graph, error) { return g, nil }
func (s *fakeSet) Reset([]string)                   {}
func (s *fakeSet) Close()                           {}
func (s *fakeSet) NewKernel(n *Node) (Kernel, error) {
	return s.ops[n.Op].kernel(n)
}

func (s *fakeSet) variable(n *Node) *Variable {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vars[n.Name] == nil {
		s.vars[n.Name] = &Variable{DType: n.Type("dtype")}
	}
	return s.vars[n.Name]
}

func kernel(f func(c *Context) error) func(*Node) (Kernel, error) {
	return func(*Node) (Kernel, error) { return KernelFunc(f), nil }
}

type asyncFunc func(c *Context, done func(error))

func (f asyncFunc) Compute(*Context) error                    { return status.New(status.Internal, "async") }
func (f asyncFunc) ComputeAsync(c *Context, done func(error)) { f(c, done) }

func asyncKernel(f asyncFunc) func(*Node) (Kernel, error) {
	return func(*Node) (Kernel, error) { return f, nil }
}

// blocked ends when the step does.
func blocked(c *Context, done func(error)) {
	context.AfterFunc(c.Ctx, func() { done(status.New(status.Cancelled, "the kernel was stopped").Derived()) })
}

func fakeOps(s *fakeSet) map[string]fakeOp {
	t := attrDef("T", "type")
	dtype, shape := attrDef("dtype", "type"), attrDef("shape", "shape")
	numeric := &tfpb.OpDef_AttrDef{Name: "T", Type: "type", AllowedValues: &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{
		Type: []tfpb.DataType{tfpb.DataType_DT_FLOAT, tfpb.DataType_DT_INT32}}}}}
	ref := func(name, attr string) *tfpb.OpDef_ArgDef { return refArg(typeArg(name, attr), true) }
	ops := map[string]fakeOp{}
	add := func(d *tfpb.OpDef, k func(*Node) (Kernel, error)) { ops[d.GetName()] = fakeOp{d, k} }
	add(&tfpb.OpDef{Name: "NoOp"}, kernel(func(*Context) error { return nil }))
	add(&tfpb.OpDef{Name: "Const", Attr: attrs(attrDef("value", "tensor"), dtype), OutputArg: args(typeArg("output", "dtype"))}, func(n *Node) (Kernel, error) {
		v, err := tensorproto.FromProto(n.Attr("value").GetTensor(), tensor.Heap{})
		return KernelFunc(func(c *Context) error { c.Set(0, v.Retain()); return nil }), err
	})
	add(&tfpb.OpDef{Name: "Identity", Attr: attrs(t), InputArg: args(typeArg("input", "T")), OutputArg: args(typeArg("output", "T"))}, kernel(func(c *Context) error { c.Forward(0, 0); return nil }))
	add(&tfpb.OpDef{Name: "AddV2", Attr: attrs(numeric), InputArg: args(typeArg("x", "T"), typeArg("y", "T")), OutputArg: args(typeArg("z", "T"))}, kernel(addKernel))
	add(&tfpb.OpDef{Name: "Less", Attr: attrs(numeric), InputArg: args(typeArg("x", "T"), typeArg("y", "T")), OutputArg: args(fixedArg("z", tfpb.DataType_DT_BOOL))}, kernel(lessKernel))
	add(&tfpb.OpDef{Name: "AddN", Attr: attrs(t, atLeast(attrDef("N", "int"), 1)), InputArg: args(&tfpb.OpDef_ArgDef{Name: "inputs", TypeAttr: "T", NumberAttr: "N"}), OutputArg: args(typeArg("sum", "T"))}, kernel(func(c *Context) error { c.Forward(0, 0); return nil }))
	add(&tfpb.OpDef{Name: "VariableV2", IsStateful: true, Attr: attrs(dtype, shape, withDefault(attrDef("container", "string"), text(""))), OutputArg: args(ref("ref", "dtype"))}, func(n *Node) (Kernel, error) {
		v := s.variable(n)
		return KernelFunc(func(c *Context) error { c.Outputs[0] = Value{Var: v}; return nil }), nil
	})
	add(&tfpb.OpDef{Name: "Assign", AllowsUninitializedInput: true, Attr: attrs(t, withDefault(attrDef("use_locking", "bool"), boolean(true))), InputArg: args(ref("ref", "T"), typeArg("value", "T")), OutputArg: args(ref("output_ref", "T"))}, kernel(func(c *Context) error {
		err := c.Inputs[0].Var.Update(func(old *tensor.Tensor) (*tensor.Tensor, error) {
			if old != nil {
				old.Release()
			}
			return c.Input(1).Retain(), nil
		})
		c.Forward(0, 0)
		return err
	}))
	add(&tfpb.OpDef{Name: "CountUpTo", Attr: attrs(t), InputArg: args(ref("ref", "T")), OutputArg: args(typeArg("output", "T"))}, kernel(func(c *Context) error { c.Set(0, c.Inputs[0].Var.Snapshot()); return nil }))
	add(&tfpb.OpDef{Name: "Fail", Attr: attrs(withDefault(attrDef("text", "string"), text("failed")), withDefault(attrDef("derived", "bool"), boolean(false)))}, kernel(func(c *Context) error {
		err := status.New(status.InvalidArgument, c.Node.Text("text"))
		if c.Node.Bool("derived") {
			err = err.Derived()
		}
		return err
	}))
	add(&tfpb.OpDef{Name: "Block"}, asyncKernel(blocked))
	add(&tfpb.OpDef{Name: "Empty", OutputArg: args(fixedArg("x", tfpb.DataType_DT_FLOAT))}, kernel(func(*Context) error { return nil }))
	add(&tfpb.OpDef{Name: "WrongType", OutputArg: args(fixedArg("x", tfpb.DataType_DT_FLOAT))}, kernel(func(c *Context) error { c.Set(0, ints(1)); return nil }))
	add(&tfpb.OpDef{Name: "WrongRefType", OutputArg: args(refArg(fixedArg("x", tfpb.DataType_DT_FLOAT), true))}, kernel(func(c *Context) error {
		c.Outputs[0] = Value{Var: &Variable{DType: tensor.Int32}}
		return nil
	}))
	add(&tfpb.OpDef{Name: "Panic"}, kernel(func(c *Context) error { _ = c.Inputs[len(c.Inputs)]; return nil }))
	add(&tfpb.OpDef{Name: "Sink", InputArg: args(fixedArg("x", tfpb.DataType_DT_FLOAT))}, kernel(func(*Context) error { return nil }))
	add(&tfpb.OpDef{Name: "Lists", Attr: attrs(attrDef("types", "list(type)")), OutputArg: args(listArg("values", "types"))}, kernel(func(*Context) error { return nil }))
	one := func(name string, f func(*Node) int32) {
		add(&tfpb.OpDef{Name: name, Attr: attrs(withDefault(attrDef("n", "int"), integer(0))), InputArg: args(fixedArg("x", tfpb.DataType_DT_INT32)), OutputArg: args(fixedArg("y", tfpb.DataType_DT_INT32))},
			kernel(func(c *Context) error { c.Set(0, ints(f(c.Node))); return nil }))
	}
	one("Zero", func(*Node) int32 { return 0 })
	one("One", func(*Node) int32 { return 1 })
	one("Number", func(n *Node) int32 { return int32(n.Int("n")) })
	communication(add)
	return ops
}

// communication adds _Send and _Recv. They use nothing but the name of the value.
func communication(add func(*tfpb.OpDef, func(*Node) (Kernel, error))) {
	common := attrs(attrDef("tensor_name", "string"), attrDef("send_device", "string"), attrDef("send_device_incarnation", "int"), attrDef("recv_device", "string"),
		withDefault(attrDef("client_terminated", "bool"), boolean(false)))
	add(&tfpb.OpDef{Name: "_Send", IsStateful: true, Attr: append(attrs(attrDef("T", "type")), common...), InputArg: args(typeArg("tensor", "T"))}, func(n *Node) (Kernel, error) { return kernelSend(n) })
	add(&tfpb.OpDef{Name: "_Recv", IsStateful: true, Attr: append(attrs(attrDef("tensor_type", "type")), common...), OutputArg: args(typeArg("tensor", "tensor_type"))}, func(n *Node) (Kernel, error) { return kernelRecv(n) })
}

func ints(v ...int32) *tensor.Tensor {
	s := tensor.Shape{}
	if len(v) != 1 {
		s = tensor.Vector(len(v))
	}
	t, err := tensor.FromSlice(s, v)
	if err != nil {
		return nil // a kernel that sets it fails
	}
	return t
}

func addKernel(c *Context) error {
	x, err := tensor.Values[int32](c.Input(0))
	if err != nil {
		return err
	}
	y, err := tensor.Values[int32](c.Input(1))
	if err != nil {
		return err
	}
	c.Set(0, ints(x[0]+y[0]))
	return nil
}

func lessKernel(c *Context) error {
	x, err := tensor.Values[int32](c.Input(0))
	if err != nil {
		return err
	}
	y, err := tensor.Values[int32](c.Input(1))
	if err != nil {
		return err
	}
	t, err := tensor.FromSlice(tensor.Shape{}, []bool{x[0] < y[0]})
	c.Set(0, t)
	return err
}

// parseGraph reads a graph, one node a line:
//
//	name = Op(input, input:1, ^control) attr=value …
//
// A value is a number, true, false, a type ("float", "float_ref"), "text", [types], a constant
// #number of type int32, or a function @f. A node is on the device dev unless it has device="…".
func parseGraph(t testing.TB, lines string) *tfpb.GraphDef {
	t.Helper()
	return &tfpb.GraphDef{Node: parseNodes(t, lines), Versions: &tfpb.VersionDef{Producer: 1500}}
}

const dev = "/job:w/replica:0/task:0/device:CPU:0"

func parseNodes(t testing.TB, lines string) []*tfpb.NodeDef {
	t.Helper()
	var nodes []*tfpb.NodeDef
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		name, rest, ok := strings.Cut(line, " = ")
		op, rest, ok2 := strings.Cut(rest, "(")
		inputs, attrText, ok3 := strings.Cut(rest, ")")
		if !ok || !ok2 || !ok3 {
			t.Fatalf("not a node: %s", line)
		}
		n := &tfpb.NodeDef{Name: name, Op: op, Device: dev, Attr: map[string]*tfpb.AttrValue{}}
		for in := range strings.SplitSeq(inputs, ",") {
			if in = strings.TrimSpace(in); in != "" {
				n.Input = append(n.Input, in)
			}
		}
		for a := range strings.FieldsSeq(attrText) {
			key, value, _ := strings.Cut(a, "=")
			if key == "device" {
				n.Device = strings.Trim(value, `"`)
				continue
			}
			n.Attr[key] = parseValue(t, value)
		}
		nodes = append(nodes, n)
	}
	return nodes
}

func parseValue(t testing.TB, s string) *tfpb.AttrValue {
	t.Helper()
	switch {
	case s == "true" || s == "false":
		return boolean(s == "true")
	case strings.HasPrefix(s, `"`):
		return text(strings.Trim(s, `"`))
	case strings.HasPrefix(s, "@"):
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_Func{Func: &tfpb.NameAttrList{Name: s[1:]}}}
	case strings.HasPrefix(s, "$"):
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_Placeholder{Placeholder: s[1:]}}
	case strings.HasPrefix(s, "#"):
		n, err := strconv.Atoi(s[1:])
		if err != nil {
			t.Fatal(err)
		}
		return constant(t, ints(int32(n)))
	case strings.HasPrefix(s, "["):
		l := emptyList()
		for name := range strings.SplitSeq(strings.Trim(s, "[]"), ",") {
			switch d, ok := tensor.ParseDType(name); {
			case ok:
				l.GetList().Type = append(l.GetList().Type, tfpb.DataType(d))
			case strings.HasPrefix(name, "@"):
				l.GetList().Func = append(l.GetList().Func, &tfpb.NameAttrList{Name: name[1:]})
			}
		}
		return l
	}
	base, isRef := strings.CutSuffix(s, "_ref")
	if d, ok := tensor.ParseDType(base); ok {
		if isRef {
			d += refOffset
		}
		return typeValue(tfpb.DataType(d))
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatalf("not a value: %s", s)
	}
	return integer(n)
}

func constant(t testing.TB, v *tensor.Tensor) *tfpb.AttrValue {
	p, err := tensorproto.ToProto(v)
	if err != nil {
		t.Fatal(err)
	}
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Tensor{Tensor: p}}
}

// importGraph imports a graph that must be right.
func importGraph(t testing.TB, s *fakeSet, lines string) *Graph {
	t.Helper()
	g, err := Import(parseGraph(t, lines), ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// runGraph imports and runs a graph once, and returns the values that its _Send nodes sent, by name.
func runGraph(t testing.TB, s *fakeSet, lines string) (map[string]Value, error) {
	t.Helper()
	return runGraphs(t, s, importGraph(t, s, lines))
}

func runGraphs(t testing.TB, s *fakeSet, graphs ...*Graph) (map[string]Value, error) {
	t.Helper()
	m := newMailbox()
	step := &Step{ID: 1, Allocator: tensor.Heap{}, Collectives: m}
	errs := make(chan error, len(graphs))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for _, g := range graphs {
		e, err := NewExecutor(g, s)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			err := e.Run(ctx, step)
			if err != nil {
				cancel()
			}
			errs <- err
		}()
	}
	var group status.Group
	for range graphs {
		group.Add(<-errs)
	}
	if err := group.Err(); err != nil {
		return m.values(), err
	}
	return m.values(), nil
}

// mailbox is the rendezvous of the fake kernels: name and frame to value.
type mailbox struct {
	mu      sync.Mutex
	sent    map[string]Value
	waiting map[string]func(Value)
}

func newMailbox() *mailbox {
	return &mailbox{sent: map[string]Value{}, waiting: map[string]func(Value){}}
}

func (m *mailbox) send(key string, v Value) {
	m.mu.Lock()
	f := m.waiting[key]
	delete(m.waiting, key)
	if f == nil {
		m.sent[key] = v
	}
	m.mu.Unlock()
	if f != nil {
		f(v)
	}
}

func (m *mailbox) recv(key string, f func(Value)) {
	m.mu.Lock()
	v, ok := m.sent[key]
	delete(m.sent, key)
	if !ok {
		m.waiting[key] = f
	}
	m.mu.Unlock()
	if ok {
		f(v)
	}
}

// values returns what was sent and not received. Keys of the root frame have no frame.
func (m *mailbox) values() map[string]Value {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.sent)
}

func mailOf(c *Context) *mailbox {
	m, ok := c.Step.Collectives.(*mailbox)
	if !ok {
		return newMailbox()
	}
	return m
}

func mailKey(c *Context) string {
	key := c.Node.Text("tensor_name")
	if fi := c.FrameIter; fi.Frame != 0 || fi.Iter != 0 {
		key += ";" + strconv.FormatUint(fi.Frame, 10) + ":" + strconv.FormatInt(fi.Iter, 10)
	}
	return key
}

func kernelSend(*Node) (Kernel, error) {
	return KernelFunc(func(c *Context) error {
		v := Value{Dead: true}
		if !c.InDead {
			v = c.Inputs[0].Retain()
		}
		mailOf(c).send(mailKey(c), v)
		return nil
	}), nil
}

func kernelRecv(*Node) (Kernel, error) {
	return asyncFunc(func(c *Context, done func(error)) {
		var once sync.Once
		stop := context.AfterFunc(c.Ctx, func() {
			once.Do(func() { done(status.New(status.Cancelled, "RecvAsync is cancelled.").Derived()) })
		})
		mailOf(c).recv(mailKey(c), func(v Value) {
			stop()
			once.Do(func() {
				c.Outputs[0] = v
				done(nil)
			})
		})
	}), nil
}

// scalar returns the int32 that a value has.
func scalar(t testing.TB, v Value) int32 {
	t.Helper()
	if v.Tensor == nil {
		t.Fatalf("no tensor: %+v", v)
	}
	x, err := tensor.Values[int32](v.Tensor)
	if err != nil || len(x) != 1 {
		t.Fatal(x, err)
	}
	return x[0]
}

const sendAttrs = ` send_device="a" send_device_incarnation=1 recv_device="b"`

// fetch is a _Send of an int32.
func fetch(name, from string) string {
	return "\n" + name + " = _Send(" + from + ") T=int32 tensor_name=\"" + name + "\"" + sendAttrs + "\n"
}

func shapeAttr(dims ...int64) *tfpb.AttrValue {
	s := &tfpb.TensorShapeProto{}
	for _, d := range dims {
		s.Dim = append(s.Dim, &tfpb.TensorShapeProto_Dim{Size: d})
	}
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: s}}
}

// function returns a FunctionDef. A signature is "name(x: int32, y: T) -> (z: int32)", with the values of
// the results after a blank line behind the nodes: "z <- node:out:0".
func function(t testing.TB, signature, lines string, typeAttrs ...string) *tfpb.FunctionDef {
	t.Helper()
	name, rest, _ := strings.Cut(signature, "(")
	in, out, _ := strings.Cut(rest, ") -> (")
	sig := &tfpb.OpDef{Name: name, InputArg: parseArgs(t, in), OutputArg: parseArgs(t, strings.TrimSuffix(out, ")"))}
	for _, a := range typeAttrs {
		sig.Attr = append(sig.Attr, attrDef(a, "type"))
	}
	f := &tfpb.FunctionDef{Signature: sig, Ret: map[string]string{}, ControlRet: map[string]string{}}
	var nodes []string
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if name, from, ok := strings.Cut(line, " <- "); ok {
			if rest, ok := strings.CutPrefix(name, "^"); ok {
				f.ControlRet[rest] = from
			} else {
				f.Ret[name] = from
			}
			continue
		}
		nodes = append(nodes, line)
	}
	f.NodeDef = parseNodes(t, strings.Join(nodes, "\n"))
	for _, n := range f.NodeDef {
		n.Device = strings.TrimSuffix(n.Device, dev)
	}
	return f
}

func parseArgs(t testing.TB, list string) []*tfpb.OpDef_ArgDef {
	var out []*tfpb.OpDef_ArgDef
	for a := range strings.SplitSeq(list, ", ") {
		name, kind, ok := strings.Cut(a, ": ")
		if !ok {
			continue
		}
		if d, ok := tensor.ParseDType(kind); ok {
			out = append(out, fixedArg(name, tfpb.DataType(d)))
		} else {
			out = append(out, typeArg(name, kind))
		}
	}
	return out
}
