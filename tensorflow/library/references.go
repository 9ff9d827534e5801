package library

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A reference edge never leaves a subgraph: TensorFlow's functions have no outputs of such types, and a
// value of them is a pointer into a running graph. Four rules remove those that would.
//
//   - A Go node that takes the value, such as a _Send, gets it from an Identity that reads the variable
//     when the Go node would have: it waits for the same control edges.
//   - An op of control flow over references, such as RefSwitch, becomes the same op over a token, a
//     bool. Nodes behind it take the token as an input that they ignore, for the order and for dead
//     branches.
//   - A node in a subgraph that takes the reference gets its own copy of the node that names the
//     variable, and waits for the node that it had the reference from, and for what the copied node
//     waited for.
//   - What an Identity reads from a variable is no copy in TensorFlow but the variable's memory: who
//     takes it sees the updates that came before itself, also those after the Identity. So a node in
//     another subgraph gets its own copy of the Identity too, and waits for the original. A Go node that
//     waits for more than the value reads when it would have run.

// isRoot reports whether n names a variable or another object of the state by a reference, so that
// copies of n with one shared_name are the same object.
func isRoot(n *node) bool {
	if len(n.inputs) > 0 || len(n.outTypes) == 0 || !n.outTypes[0].IsRef() {
		return false
	}
	for _, a := range n.opDef.GetAttr() {
		if a.GetName() == "shared_name" {
			return true
		}
	}
	return false
}

// isToken reports whether n is an op of control flow whose references became tokens.
func (n *node) isToken() bool { return n.refs != nil }

// readReferences applies the first two rules, and the last one to Go nodes.
func (c *cutter) readReferences() error {
	c.findReads()
	original := c.nodes // without those that are added below
	tokens := map[*node]value{}
	for _, n := range original {
		if n.place == inGo && strings.HasPrefix(n.op, "Ref") {
			n.refs = []value{}
			for i, in := range n.inputs {
				if n.inTypes[i].IsRef() {
					n.refs = append(n.refs, in)
				}
			}
		}
		if isRoot(n) && len(n.control) > 1 {
			c.gate(n)
		}
	}
	for _, n := range original {
		if n.place != inGo {
			continue
		}
		for i, in := range n.inputs {
			switch {
			case c.isRead(in):
				if after := n.waitsFor(i); len(after) > 0 {
					r := c.read(n, i, in, after)
					n.inputs[i], c.reads[r] = value{r, 0}, c.reads[in.n]
				}
			case n.isToken() && !n.inTypes[i].IsRef(): // the predicate of a RefSwitch
				if in.dtype().IsRef() {
					n.inputs[i] = value{c.read(n, i, in, n.control), 0}
				}
			case n.isToken():
				n.inputs[i] = c.token(tokens, in)
			case in.dtype().IsRef():
				n.inputs[i] = value{c.read(n, i, in, n.control), 0}
			}
		}
	}
	for _, n := range original {
		if n.isToken() {
			c.dereference(n, tensor.Bool)
		}
	}
	return nil
}

// read adds the node that reads a variable for input i of a Go node, after some nodes. It has the name of
// the Go node, which an error then names.
func (c *cutter) read(for_ *node, i int, in value, after []*node) *node {
	t, name := in.dtype().Base(), for_.name
	if i > 0 {
		name += "/read_" + strconv.Itoa(i)
	}
	r := c.add(for_, name, "Identity", map[string]*tfpb.AttrValue{"T": typeAttr(t)}, t)
	r.inputs, r.inTypes, r.control = []value{in}, []tensor.DType{t}, after
	return r
}

// findReads finds the nodes whose value is the memory of a variable, and the reference that they have
// it from.
func (c *cutter) findReads() {
	c.reads = map[*node]value{}
	users := map[*node][]*node{}
	var todo []*node
	for _, n := range c.nodes {
		if !handsOn(n.op) || c.library.has(n.op) {
			continue
		}
		if in := n.inputs[0]; in.isReference() {
			c.reads[n] = in
			todo = append(todo, n)
		} else {
			users[in.n] = append(users[in.n], n)
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, u := range users[n] {
			c.reads[u] = c.reads[n]
			todo = append(todo, u)
		}
	}
}

// isRead reports whether a value is the memory of a variable.
func (c *cutter) isRead(v value) bool {
	_, ok := c.reads[v.n]
	return ok
}

// readOf returns the node that names the variable whose memory a value is. A value that may be the memory
// of one of two variables is handed on as it was when it was read: nil.
func (c *cutter) readOf(v value) *node {
	if r := c.roots[c.reads[v.n].n]; r != several {
		return r
	}
	return nil
}

// waitsFor returns the nodes that the Go node waits for besides input i before it hands it on. The
// control edges of a Merge may be dead when it is not.
func (n *node) waitsFor(i int) []*node {
	switch {
	case n.op == "Merge":
		return nil
	case (n.op == "Switch" || n.op == "_SwitchN") && i == 0:
		return append(slices.Clip(n.control), n.inputs[1].n)
	}
	return n.control
}

// handsOn reports whether the kernel of an op gives its input as its output, without a copy.
func handsOn(op string) bool {
	switch op {
	case "Identity", "StopGradient", "PreventGradient", "PlaceholderWithDefault":
		return true
	}
	return false
}

// token returns the token of a reference: that of an op of control flow, or a constant that is there
// when the node has run.
func (c *cutter) token(tokens map[*node]value, in value) value {
	if in.n.isToken() {
		return in
	}
	if t, ok := tokens[in.n]; ok {
		return t
	}
	yes := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_BOOL, TensorShape: &tfpb.TensorShapeProto{}, BoolVal: []bool{true}}
	n := c.add(in.n, c.unique(in.n.name+"/token"), "Const", map[string]*tfpb.AttrValue{
		"dtype": typeAttr(tensor.Bool), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: yes}}}, tensor.Bool)
	if n.control = in.n.control; !isRoot(in.n) {
		n.control = []*node{in.n}
	}
	tokens[in.n] = value{n, 0}
	return tokens[in.n]
}

// dereference makes an op of control flow over references one over values of a type.
func (c *cutter) dereference(n *node, t tensor.DType) {
	op := strings.TrimPrefix(n.op, "Ref")
	def := &tfpb.NodeDef{Name: n.name, Op: op, Device: n.device, Attr: map[string]*tfpb.AttrValue{}}
	maps.Copy(def.Attr, n.def.GetAttr())
	def.Attr["T"] = typeAttr(t)
	n.op, n.def, n.opDef = op, def, c.set.ops[op]
	n.inTypes, n.outTypes = base(n.inTypes, t), base(n.outTypes, t)
}

// base returns types in which references are values of a type.
func base(types []tensor.DType, value tensor.DType) []tensor.DType {
	b := make([]tensor.DType, len(types))
	for i, t := range types {
		b[i] = t
		if t.IsRef() {
			b[i] = value
		}
	}
	return b
}

func typeAttr(t tensor.DType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType(t)}}
}

// gate makes n wait for one node in place of many: each subgraph with a copy of n waits for it.
func (c *cutter) gate(n *node) {
	name := c.unique(n.name + "/inputs")
	g := &node{name: name, op: "NoOp", device: n.device, opDef: c.set.ops["NoOp"], control: n.control,
		def: &tfpb.NodeDef{Name: name, Op: "NoOp", Device: n.device}}
	c.nodes = append(c.nodes, g)
	n.control = []*node{g}
}

// several is what a reference refers to that is one of two variables.
var several = &node{}

// findRoots finds the nodes that name what references refer to. It follows the references from these
// nodes on, through loops too.
func (c *cutter) findRoots() {
	c.roots = map[*node]*node{}
	users := map[*node][]*node{}
	var todo []*node
	for _, n := range c.nodes {
		if isRoot(n) {
			c.roots[n] = n
			todo = append(todo, n)
			continue
		}
		for _, in := range n.passes() {
			users[in.n] = append(users[in.n], n)
		}
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for _, u := range users[n] {
			switch c.roots[u] {
			case c.roots[n], several:
				continue
			case nil:
				c.roots[u] = c.roots[n]
			default:
				c.roots[u] = several
			}
			todo = append(todo, u)
		}
	}
}

// passes returns the inputs that n may pass on as its output reference. Most ops, such as ApplyAdam, pass
// on their first reference; RefSelect passes on any of them.
func (n *node) passes() []value {
	if n.isToken() {
		return n.refs
	}
	var refs []value
	for i, in := range n.inputs {
		if n.inTypes[i].IsRef() {
			refs = append(refs, in)
		}
	}
	if len(refs) > 1 && n.op != "RefSelect" {
		return refs[:1]
	}
	return refs
}

// root returns the node that names what a reference refers to.
func (c *cutter) root(user *node, ref value) (*node, error) {
	switch r := c.roots[ref.n]; r {
	case nil:
		return nil, noRoot(user, ref, "nothing names it")
	case several:
		return nil, noRoot(user, ref, "its value is one of two variables")
	default:
		return r, nil
	}
}

func noRoot(user *node, ref value, why string) error {
	return status.Errorf(status.Unimplemented, "node %q (%s) takes a reference from %q (%s), which another function computes, and %s; use a resource variable (tf.compat.v1.enable_resource_variables)",
		user.name, user.op, ref.n.name, ref.n.op, why)
}
