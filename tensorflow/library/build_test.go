//go:build interop

package library

import (
	"context"
	"strconv"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// builder makes graphs of nodes whose definitions come from a Set.
type builder struct {
	t     testing.TB
	s     *Set
	g     *graph.Graph
	nodes map[string]*graph.Node
}

func newBuilder(t testing.TB, s *Set) *builder {
	return &builder{t: t, s: s, g: &graph.Graph{}, nodes: map[string]*graph.Node{}}
}

// add adds a node. inputs are "node", "node:1" and "^node".
func (b *builder) add(name, op, inputs string, attrs ...any) *builder {
	b.t.Helper()
	def := b.s.OpDef(op)
	if def == nil {
		b.t.Fatalf("no op %s", op)
	}
	n := &graph.Node{ID: len(b.g.Nodes), Name: name, Op: op, OpDef: def, Def: &tfpb.NodeDef{Name: name, Op: op, Attr: map[string]*tfpb.AttrValue{}}}
	for _, a := range def.GetAttr() {
		if a.GetDefaultValue() != nil {
			n.Def.Attr[a.GetName()] = a.GetDefaultValue()
		}
	}
	for i := 0; i < len(attrs); i += 2 {
		name, ok := attrs[i].(string)
		if !ok {
			b.t.Fatalf("%s: %v is no name of an attribute", n.Name, attrs[i])
		}
		n.Def.Attr[name] = attr(attrs[i+1])
	}
	n.InTypes, n.OutTypes = argTypes(def.GetInputArg(), n), argTypes(def.GetOutputArg(), n)
	for in := range strings.FieldsSeq(inputs) {
		if c, ok := strings.CutPrefix(in, "^"); ok {
			from := b.node(c)
			n.ControlIn = append(n.ControlIn, from)
			from.Out = append(from.Out, graph.Edge{From: graph.ControlSlot, To: n, Input: graph.ControlSlot})
			continue
		}
		from, index, _ := strings.Cut(in, ":")
		i, _ := strconv.Atoi(index)
		f := b.node(from)
		f.Out = append(f.Out, graph.Edge{From: i, To: n, Input: len(n.In)})
		n.In = append(n.In, graph.Output{Node: f, Index: i})
	}
	if len(n.In) != len(n.InTypes) {
		b.t.Fatalf("%s has %d inputs, %s takes %d", name, len(n.In), op, len(n.InTypes))
	}
	b.g.Nodes = append(b.g.Nodes, n)
	b.nodes[name] = n
	return b
}

func (b *builder) node(name string) *graph.Node {
	b.t.Helper()
	if b.nodes[name] == nil {
		b.t.Fatalf("no node %s", name)
	}
	return b.nodes[name]
}

func argTypes(args []*tfpb.OpDef_ArgDef, n *graph.Node) (types []tensor.DType) {
	for _, a := range args {
		one := []tensor.DType{tensor.DType(a.GetType())}
		switch {
		case a.GetTypeListAttr() != "":
			one = n.Types(a.GetTypeListAttr())
		case a.GetTypeAttr() != "":
			one[0] = n.Type(a.GetTypeAttr())
		}
		if a.GetIsRef() {
			one[0] += 100
		}
		times := 1
		if a.GetNumberAttr() != "" {
			times = int(n.Int(a.GetNumberAttr()))
		}
		for range times {
			types = append(types, one...)
		}
	}
	return types
}

// attr makes an attribute: a type, an int, a bool, a string, a shape, a list of shapes or types, or a tensor.
func attr(v any) *tfpb.AttrValue {
	switch v := v.(type) {
	case tensor.DType:
		return typeAttr(v)
	case int:
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_I{I: int64(v)}}
	case bool:
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_B{B: v}}
	case string:
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(v)}}
	case []int64:
		s := &tfpb.TensorShapeProto{}
		for _, d := range v {
			s.Dim = append(s.Dim, &tfpb.TensorShapeProto_Dim{Size: d})
		}
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: s}}
	case [][]int64:
		l := &tfpb.AttrValue_ListValue{}
		for _, dims := range v {
			l.Shape = append(l.Shape, attr(dims).GetShape())
		}
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: l}}
	case []tensor.DType:
		l := &tfpb.AttrValue_ListValue{}
		for _, t := range v {
			l.Type = append(l.Type, tfpb.DataType(t))
		}
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: l}}
	case *tfpb.TensorProto:
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_Tensor{Tensor: v}}
	}
	return nil
}

// floats adds a Const of a vector, or of a scalar when there is one value.
func (b *builder) floats(name string, values ...float32) *builder {
	p := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_FLOAT, TensorShape: &tfpb.TensorShapeProto{}, FloatVal: values}
	if len(values) > 1 {
		p.TensorShape.Dim = []*tfpb.TensorShapeProto_Dim{{Size: int64(len(values))}}
	}
	return b.add(name, "Const", "", "dtype", tensor.Float32, "value", p)
}

// variable adds a reference variable of floats.
func (b *builder) variable(name string, dims ...int64) *builder {
	if dims == nil {
		dims = []int64{}
	}
	return b.add(name, "VariableV2", "", "shape", dims, "dtype", tensor.Float32)
}

// send and recv add nodes that the test feeds and fetches under their names.
func (b *builder) send(name, input string) *builder {
	from, index, _ := strings.Cut(strings.Fields(input)[0], ":")
	i, _ := strconv.Atoi(index)
	return b.add(name, "_Send", input, "T", b.node(from).OutTypes[i].Base(), "tensor_name", name, "send_device", "a", "send_device_incarnation", 1, "recv_device", "b")
}

func (b *builder) recv(name string, t tensor.DType, control ...string) *builder {
	return b.add(name, "_Recv", strings.Join(control, " "), "tensor_type", t, "tensor_name", name, "send_device", "a", "send_device_incarnation", 1, "recv_device", "b")
}

// goSet is the Go kernels of the tests: what a node sends is recorded, and what it receives is given.
type goSet struct{ s *Set }

func (*goSet) Name() string { return "go" }
func (g *goSet) OpDef(op string) *tfpb.OpDef {
	switch op {
	case "NoOp", "Const", "Identity":
		return g.s.ops[op]
	}
	return nil
}
func (g *goSet) NewState() (graph.State, error)              { return goState{}, nil }
func (s goState) NewSession() graph.State                    { return s }
func (goState) Rewrite(g *graph.Graph) (*graph.Graph, error) { return g, nil }
func (goState) Reset([]string)                               {}
func (goState) Close()                                       {}

type goState struct{}

func (goState) NewKernel(n *graph.Node) (graph.Kernel, error) {
	switch n.Op {
	case "NoOp":
		return graph.KernelFunc(func(*graph.Context) error { return nil }), nil
	case "Identity":
		return graph.KernelFunc(func(c *graph.Context) error { c.Forward(0, 0); return nil }), nil
	case "Const":
		return graph.KernelFunc(func(c *graph.Context) error {
			t, err := fromProto(n.Attr("value").GetTensor())
			if err == nil {
				c.Set(0, t)
			}
			return err
		}), nil
	}
	return graph.KernelFunc(func(*graph.Context) error { return status.Errorf(status.Internal, "the test runs %s", n.Op) }), nil
}

// program is a rewritten graph with its kernels.
type program struct {
	t       testing.TB
	g       *graph.Graph
	kernels []graph.Kernel
	// allocator is that of the steps.
	allocator tensor.Allocator
	// after, if not nil, sees the outputs of each kernel.
	after func(*graph.Node, []graph.Value)
}

// prepare rewrites the graph of b and makes its kernels.
func (b *builder) prepare(s graph.State) (*program, error) {
	g, err := s.Rewrite(b.g)
	if err != nil {
		return nil, err
	}
	p := &program{b.t, g, make([]graph.Kernel, len(g.Nodes)), tensor.Heap{}, nil}
	for i, n := range g.Nodes {
		if n.ID != i {
			b.t.Errorf("node %s has ID %d at %d", n.Name, n.ID, i)
		}
		if !staysInGo(n.Op) {
			if p.kernels[i], err = s.NewKernel(n); err != nil {
				return nil, err
			}
		}
	}
	return p, nil
}

// must is prepare without an error.
func (b *builder) must(s graph.State) *program {
	b.t.Helper()
	p, err := b.prepare(s)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func (p *program) close() {
	for _, k := range p.kernels {
		if c, ok := k.(interface{ Close() error }); ok {
			if err := c.Close(); err != nil {
				p.t.Error(err)
			}
		}
	}
}

// run runs the graph, one node after another, as soon as its inputs are there. It returns what was
// sent, by the names of the _Send nodes; a dead value is nil. It knows no loops.
func (p *program) run(ctx context.Context, feeds map[string]*tensor.Tensor) (map[string]*tensor.Tensor, error) {
	sent := map[string]*tensor.Tensor{}
	values := make([][]graph.Value, len(p.g.Nodes))
	dead, done := map[*graph.Node]bool{}, map[*graph.Node]bool{}
	defer func() {
		for _, vs := range values {
			for _, v := range vs {
				v.Release()
			}
		}
	}()
	for range p.g.Nodes {
		for _, n := range p.g.Nodes {
			if done[n] || !p.ready(n, values, done) {
				continue
			}
			done[n] = true
			values[n.ID] = make([]graph.Value, len(n.OutTypes))
			in := make([]graph.Value, len(n.In))
			for i, from := range n.In {
				in[i] = values[from.Node.ID][from.Index]
				dead[n] = dead[n] || in[i].Dead
			}
			for _, from := range n.ControlIn {
				dead[n] = dead[n] || dead[from]
			}
			if err := p.node(ctx, n, in, values[n.ID], dead, feeds, sent); err != nil {
				return sent, err
			}
		}
	}
	for _, n := range p.g.Nodes {
		if !done[n] {
			return sent, status.Errorf(status.Internal, "node %s never ran", n.Name)
		}
	}
	return sent, nil
}

func (p *program) ready(n *graph.Node, values [][]graph.Value, done map[*graph.Node]bool) bool {
	for _, from := range n.In {
		if !done[from.Node] {
			return false
		}
	}
	for _, from := range n.ControlIn {
		if !done[from] {
			return false
		}
	}
	return true
}

func (p *program) node(ctx context.Context, n *graph.Node, in, out []graph.Value, dead map[*graph.Node]bool, feeds, sent map[string]*tensor.Tensor) error {
	switch {
	case n.Op == "Merge":
		dead[n] = true
		for _, v := range in {
			if !v.Dead {
				dead[n] = false
				out[0] = v.Retain()
			}
		}
	case n.Op == "_Send":
		sent[n.Text("tensor_name")] = nil
		if !dead[n] {
			sent[n.Text("tensor_name")] = in[0].Tensor.Retain()
		}
	case n.Op == "_Recv":
		t := feeds[n.Text("tensor_name")]
		out[0] = graph.Value{Dead: t == nil}
		if t != nil {
			out[0].Tensor = t.Retain()
		}
		return nil
	case n.Op == "Switch" && !dead[n]:
		taken := 0
		if in[1].Tensor.Bytes()[0] != 0 {
			taken = 1
		}
		out[taken] = in[0].Retain()
		out[1-taken].Dead = true
		return nil
	case !dead[n]:
		return p.kernel(ctx, n, in, out)
	}
	for i := range out {
		out[i].Dead = out[i].Dead || dead[n]
	}
	return nil
}

func (p *program) kernel(ctx context.Context, n *graph.Node, in, out []graph.Value) error {
	c := &graph.Context{Ctx: ctx, Step: &graph.Step{Allocator: p.allocator}, Node: n, Inputs: in, Outputs: out}
	k := p.kernels[n.ID]
	err := k.Compute(c)
	if _, subgraph := k.(graph.BlockingKernel); subgraph && p.after != nil {
		p.after(n, out)
	}
	return err
}
