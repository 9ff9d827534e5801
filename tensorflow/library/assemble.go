package library

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// functionOp is the op of the nodes that stand for subgraphs.
const functionOp = graph.SubgraphOp

// unit is a subgraph as a function and as a node: its arguments and results.
type unit struct {
	p       *subgraph
	args    []value
	argOf   map[value]int
	results []value
	resOf   map[value]int
	control []*node
	after   map[*node]bool // the members of control
	roots   []*node        // copies of nodes, in the order of their first use
	has     map[*node]bool // the members of roots

	node *graph.Node
}

// assemble returns the graph of Go nodes and subgraphs, and the unit of each subgraph by its node.
func (c *cutter) assemble(g *graph.Graph) (*graph.Graph, []*unit, error) {
	units := make([]*unit, len(c.subgraphs))
	for i, p := range c.subgraphs {
		units[i] = &unit{p: p, argOf: map[value]int{}, resOf: map[value]int{}, after: map[*node]bool{}, has: map[*node]bool{}}
		p.unit = units[i]
		if p.lasts != ofGraph { // all outputs, whichever of them this graph uses
			for i := range p.nodes[0].outTypes {
				value{p.nodes[0], i}.result()
			}
		}
	}
	for _, u := range units {
		if err := u.connect(c); err != nil {
			return nil, nil, err
		}
	}
	for _, n := range c.nodes {
		if n.place == inGo {
			for _, in := range n.inputs {
				in.result()
			}
		}
	}
	return c.build(g, units), units, nil
}

// connect finds what a subgraph takes from outside.
func (u *unit) connect(c *cutter) error {
	for _, n := range u.p.nodes {
		for _, in := range n.inputs {
			if err := u.take(c, n, in); err != nil {
				return err
			}
		}
		for _, from := range n.control {
			u.waitFor(from)
		}
	}
	return nil
}

// take makes a value available to n, a node of the subgraph.
func (u *unit) take(c *cutter, n *node, in value) error {
	switch {
	case in.n.place == copied:
		u.copyOf(in.n)
		for _, from := range in.n.control {
			u.waitFor(from)
		}
	case in.n.subgraph == u.p:
	case c.readOf(in) != nil && u.p.lasts == ofGraph:
		u.copyOf(c.readOf(in))
		u.copyOf(in.n)
		u.waitFor(in.n)
	case in.isReference():
		r, err := c.root(n, in)
		if err != nil {
			return err
		}
		u.copyOf(r)
		if in.n.isToken() {
			u.arg(in)
		} else {
			u.waitFor(in.n)
		}
	default:
		u.arg(in)
	}
	return nil
}

// isReference reports whether v is a reference, or the token of one.
func (v value) isReference() bool {
	return v.dtype().IsRef() || v.n.isToken() && v.dtype() == tensor.Bool
}

// arg makes a value an argument of the function.
func (u *unit) arg(v value) {
	if _, ok := u.argOf[v]; ok {
		return
	}
	u.argOf[v] = len(u.args)
	u.args = append(u.args, v)
	v.result()
}

// result makes a value a result of the function that computes it, if one does.
func (v value) result() {
	if v.n.subgraph == nil {
		return
	}
	u := v.n.subgraph.unit
	if _, ok := u.resOf[v]; !ok {
		u.resOf[v] = len(u.results)
		u.results = append(u.results, v)
	}
}

// waitFor makes the subgraph wait for a node.
func (u *unit) waitFor(n *node) {
	if n.subgraph == u.p || u.after[n] {
		return
	}
	u.after[n] = true
	u.control = append(u.control, n)
}

func (u *unit) copyOf(n *node) {
	if !u.has[n] {
		u.has[n] = true
		u.roots = append(u.roots, n)
	}
}

// build makes the new graph.
func (c *cutter) build(g *graph.Graph, units []*unit) *graph.Graph {
	out := &graph.Graph{Library: g.Library, Producer: g.Producer}
	made := map[*node]*graph.Node{}
	add := func(n *graph.Node) *graph.Node {
		n.ID = len(out.Nodes)
		out.Nodes = append(out.Nodes, n)
		return n
	}
	for _, n := range c.nodes {
		if n.place == inGo {
			made[n] = add(&graph.Node{Name: n.name, Op: n.op, Device: n.device, Def: n.def, OpDef: n.opDef, InTypes: n.inTypes, OutTypes: n.outTypes})
		}
	}
	for _, u := range units {
		u.node = add(u.describe())
	}
	at := func(v value) graph.Output {
		if v.n.subgraph == nil {
			return graph.Output{Node: made[v.n], Index: v.i}
		}
		u := v.n.subgraph.unit
		return graph.Output{Node: u.node, Index: u.resOf[v]}
	}
	wire := func(to *graph.Node, inputs []value, control []*node) {
		for i, in := range inputs {
			from := at(in)
			to.In = append(to.In, from)
			from.Node.Out = append(from.Node.Out, graph.Edge{From: from.Index, To: to, Input: i})
		}
		after := map[*graph.Node]bool{}
		for _, n := range control {
			from := made[n]
			if n.subgraph != nil {
				from = n.subgraph.unit.node
			}
			if after[from] { // a second node of a subgraph
				continue
			}
			after[from] = true
			to.ControlIn = append(to.ControlIn, from)
			from.Out = append(from.Out, graph.Edge{From: graph.ControlSlot, To: to, Input: graph.ControlSlot})
		}
	}
	for _, n := range c.nodes {
		if n.place == inGo {
			wire(made[n], n.inputs, n.control)
		}
	}
	for _, u := range units {
		wire(u.node, u.args, u.control)
	}
	return out
}

// describe returns the node of a subgraph, without edges. It has the name of the last node of the
// subgraph, which step stats and errors show.
func (u *unit) describe() *graph.Node {
	last := u.p.nodes[len(u.p.nodes)-1]
	n := &graph.Node{Name: last.name, Op: functionOp, Device: last.device,
		Def:   &tfpb.NodeDef{Name: last.name, Op: functionOp, Device: last.device},
		OpDef: &tfpb.OpDef{Name: functionOp, IsStateful: true}}
	for _, v := range u.args {
		n.InTypes = append(n.InTypes, v.dtype())
	}
	for _, v := range u.results {
		n.OutTypes = append(n.OutTypes, v.dtype().Base())
	}
	return n
}

// definition returns the function of a unit, without a name. It calls other functions by their names in
// the graph.
func (u *unit) definition(c *cutter) *tfpb.FunctionDef {
	def := &tfpb.FunctionDef{Signature: &tfpb.OpDef{IsStateful: true}, Ret: map[string]string{}, ControlRet: map[string]string{}}
	nodes := slices.Concat(u.roots, u.p.nodes)
	names, taken := u.argNames(nodes)
	for i, v := range u.args {
		def.Signature.InputArg = append(def.Signature.InputArg, &tfpb.OpDef_ArgDef{Name: names[i], Type: tfpb.DataType(v.dtype())})
	}
	used := map[*node]bool{}
	for _, n := range nodes {
		body := u.body(c, n, names, used)
		for i, in := range n.inputs {
			if n.inTypes[i].IsRef() && !in.dtype().IsRef() && !in.n.isToken() {
				body.Input[i] = u.reference(def, n, i, body.Input[i], taken)
			}
		}
		def.NodeDef = append(def.NodeDef, body)
	}
	for i, v := range u.results {
		name := "result_" + strconv.Itoa(i)
		def.Signature.OutputArg = append(def.Signature.OutputArg, &tfpb.OpDef_ArgDef{Name: name, Type: tfpb.DataType(v.dtype().Base())})
		def.Ret[name] = v.inBody()
		used[v.n] = true
	}
	for _, n := range u.p.nodes {
		if !used[n] { // otherwise TensorFlow removes nodes that nothing of the function needs
			name := "end_" + strconv.Itoa(len(def.Signature.ControlOutput))
			def.Signature.ControlOutput = append(def.Signature.ControlOutput, name)
			def.ControlRet[name] = n.name
		}
	}
	return def
}

// argNames returns names for the arguments that no node of the function has, and all that are taken.
func (u *unit) argNames(nodes []*node) (names []string, taken map[string]bool) {
	taken = map[string]bool{}
	for _, n := range nodes {
		taken[n.name] = true
	}
	names = make([]string, len(u.args))
	for i := range names {
		names[i] = "arg_" + strconv.Itoa(i)
		for taken[names[i]] {
			names[i] += "_"
		}
		taken[names[i]] = true
	}
	return names, taken
}

// body returns a node as it stands in the function.
func (u *unit) body(c *cutter, n *node, args []string, used map[*node]bool) *tfpb.NodeDef {
	def := &tfpb.NodeDef{Name: n.name, Op: n.op, Attr: map[string]*tfpb.AttrValue{}, ExperimentalDebugInfo: n.def.GetExperimentalDebugInfo()}
	for name, a := range n.def.GetAttr() {
		switch {
		case name == "_class": // colocation with nodes that may be elsewhere
		case u.p.lasts != ofGraph && name != "_kernel" && strings.HasPrefix(name, "_"): // a master's notes, which differ between graphs
		default:
			def.Attr[name] = a
		}
	}
	if u.p.lasts != ofGraph {
		def.ExperimentalDebugInfo = nil
	}
	inputs := n.inputs
	if u.has[n] && c.isRead(value{n, 0}) { // a copy takes the memory from the variable itself
		inputs = []value{c.reads[n]}
	}
	for _, in := range inputs {
		from := in
		if in.n.subgraph != u.p && in.n.place != copied && !u.has[in.n] {
			i, ok := u.argOf[in]
			if ok && !in.isReference() {
				def.Input = append(def.Input, args[i])
				continue
			}
			r, _ := c.root(n, in) // take has found it
			from = value{r, 0}
		}
		used[from.n] = true
		def.Input = append(def.Input, from.inBody())
	}
	var control []string
	for _, from := range n.control {
		if from.subgraph == u.p {
			used[from] = true
			control = append(control, "^"+from.name)
		}
	}
	slices.Sort(control)
	def.Input = append(def.Input, slices.Compact(control)...)
	return def
}

// inBody is the name of a value in a function: node:output:index.
func (v value) inBody() string {
	i := v.i
	for _, out := range v.n.opDef.GetOutputArg() {
		n := 1
		switch {
		case out.GetNumberAttr() != "":
			n = int(v.n.def.GetAttr()[out.GetNumberAttr()].GetI())
		case out.GetTypeListAttr() != "":
			n = len(v.n.def.GetAttr()[out.GetTypeListAttr()].GetList().GetType())
		}
		if i < n {
			return fmt.Sprintf("%s:%s:%d", v.n.name, out.GetName(), i)
		}
		i -= n
	}
	return v.n.name
}
