package library

import (
	"maps"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// A reference edge never leaves a piece: TensorFlow's functions have no outputs of such types, and a
// value of them is a pointer into a running graph. Three rules remove those that would.
//
//   - A Go node that takes the value, such as a _Send, gets it from an Identity that reads the variable
//     when the Go node would have: it waits for the same control edges.
//   - An op of control flow over references, such as RefSwitch, becomes the same op over a token, a
//     bool. Nodes behind it take the token as an input that they ignore, for the order and for dead
//     branches.
//   - A node in a piece that takes the reference gets its own copy of the node that names the
//     variable, and waits for the node that it had the reference from, and for what the copied node
//     waited for.

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

// readReferences applies the first two rules.
func (c *cutter) readReferences() error {
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
			case n.isToken() && !n.inTypes[i].IsRef(): // the predicate of a RefSwitch
				if in.dtype().IsRef() {
					n.inputs[i] = value{c.read(n, i, in), 0}
				}
			case n.isToken():
				n.inputs[i] = c.token(tokens, in)
			case in.dtype().IsRef():
				n.inputs[i] = value{c.read(n, i, in), 0}
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

// read adds the node that reads a variable for input i of a Go node. It has the name of the Go node,
// which an error then names.
func (c *cutter) read(for_ *node, i int, in value) *node {
	t, name := in.dtype().Base(), for_.name
	if i > 0 {
		name += "/read_" + strconv.Itoa(i)
	}
	r := c.add(for_, name, "Identity", map[string]*tfpb.AttrValue{"T": typeAttr(t)}, t)
	r.inputs, r.inTypes, r.control = []value{in}, []tensor.DType{t}, for_.control
	return r
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

// gate makes n wait for one node in place of many: each piece with a copy of n waits for it.
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
