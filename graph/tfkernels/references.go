package tfkernels

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
//     variable, and waits for the node that it had the reference from.

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
			n.refs = append([]value{}, n.inputs...)
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
			if err := c.useToken(n); err != nil {
				return err
			}
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
	n := c.add(in.n, in.n.name+"/token", "Const", map[string]*tfpb.AttrValue{
		"dtype": typeAttr(tensor.Bool), "value": {Value: &tfpb.AttrValue_Tensor{Tensor: yes}}}, tensor.Bool)
	if !isRoot(in.n) {
		n.control = []*node{in.n}
	}
	tokens[in.n] = value{n, 0}
	return tokens[in.n]
}

// useToken makes an op of control flow over references one over bools.
func (c *cutter) useToken(n *node) error {
	op := strings.TrimPrefix(n.op, "Ref")
	def := &tfpb.NodeDef{Name: n.name, Op: op, Device: n.device, Attr: map[string]*tfpb.AttrValue{}}
	maps.Copy(def.Attr, n.def.GetAttr())
	def.Attr["T"] = typeAttr(tensor.Bool)
	n.op, n.def, n.opDef = op, def, c.set.ops[op]
	n.inTypes, n.outTypes = base(n.inTypes), base(n.outTypes)
	return nil
}

// base returns types in which references are bools.
func base(types []tensor.DType) []tensor.DType {
	b := make([]tensor.DType, len(types))
	for i, t := range types {
		b[i] = t
		if t.IsRef() {
			b[i] = tensor.Bool
		}
	}
	return b
}

func typeAttr(t tensor.DType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType(t)}}
}

// root returns the node that names what a reference refers to.
func root(user *node, ref value) (*node, error) {
	n, seen := ref.n, map[*node]bool{}
	for !isRoot(n) && !seen[n] {
		seen[n] = true
		from := n.inputs
		if n.isToken() {
			from = n.refs
		}
		var next *node
		for _, in := range from {
			switch {
			case !in.n.gives(in.i):
			case next == nil:
				next = in.n
			case n.isToken(): // a RefMerge: both must lead to one variable
				a, err := root(user, value{next, 0})
				if err != nil {
					return nil, err
				}
				if b, err := root(user, in); err != nil || a != b {
					return nil, noRoot(user, ref, "its value is one of two variables")
				}
			}
		}
		if next == nil {
			return nil, noRoot(user, ref, "nothing names it")
		}
		n = next
	}
	if !isRoot(n) {
		return nil, noRoot(user, ref, "nothing names it")
	}
	return n, nil
}

// gives reports whether output i of n is, or was before its data became tokens, a reference.
func (n *node) gives(i int) bool {
	return n.outTypes[i].IsRef() || n.isToken() && i < len(n.outTypes) && n.outTypes[i] == tensor.Bool
}

func noRoot(user *node, ref value, why string) error {
	return status.Errorf(status.Unimplemented, "node %q (%s) takes a reference from %q (%s), which another function computes, and %s; use a resource variable (tf.compat.v1.enable_resource_variables)",
		user.name, user.op, ref.n.name, ref.n.op, why)
}
