package graph

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// instantiate makes the body of a function for the attributes of a call. The errors name the function.
func (l *Library) instantiate(f *tfpb.FunctionDef, c call, b *budget) (*body, error) {
	in := &instance{f: f, values: make(map[string]*tfpb.AttrValue), outputs: make(map[string][]Output)}
	in.im = importer{lib: l, budget: b, producer: l.producer, function: in}
	bd, err := in.run(c)
	if err != nil {
		return nil, status.From(err).WithPrefix("function " + strconv.Quote(c.name))
	}
	return bd, nil
}

// instance is a function while its body is made.
type instance struct {
	f      *tfpb.FunctionDef
	im     importer
	values map[string]*tfpb.AttrValue // of the attributes of the function
	// outputs has the values of the body under the names that inputs use: "arg", "arg:0",
	// "node:out", "node:out:0".
	outputs map[string][]Output
}

func (in *instance) run(c call) (*body, error) {
	sig := in.f.GetSignature()
	if err := in.im.budget.takeNodes("it", len(in.f.GetNodeDef())+len(sig.GetInputArg())+len(sig.GetOutputArg())); err != nil {
		return nil, err
	}
	for _, a := range sig.GetAttr() {
		v := c.attrs[a.GetName()]
		if v == nil {
			v = a.GetDefaultValue()
		}
		if v == nil {
			return nil, status.Errorf(status.InvalidArgument, "Attr %s is not found from the call", a.GetName())
		}
		if err := in.im.checkAttr(a, v); err != nil {
			return nil, status.From(err).WithPrefix("attribute " + strconv.Quote(a.GetName()))
		}
		in.values[a.GetName()] = v
	}
	bd := &body{name: c.name}
	caller := &Node{Name: c.name, Op: c.name, Def: &tfpb.NodeDef{Attr: in.values}}
	defs, err := in.args(caller, bd)
	if err != nil {
		return nil, err
	}
	if err := refuseArguments(in.f.GetNodeDef()); err != nil {
		return nil, err
	}
	for _, d := range in.f.GetNodeDef() {
		def, err := in.substitute(d)
		if err != nil {
			return nil, err
		}
		defs = append(defs, def)
	}
	if defs, err = in.returns(caller, bd, defs); err != nil {
		return nil, err
	}
	g, err := in.im.run(defs)
	if err != nil {
		return nil, err
	}
	bd.graph, err = in.prune(g)
	return bd, err
}

// args returns the _Arg nodes.
func (in *instance) args(caller *Node, bd *body) (defs []*tfpb.NodeDef, err error) {
	for _, a := range in.f.GetSignature().GetInputArg() {
		types, err := in.im.argTypes(caller, []*tfpb.OpDef_ArgDef{a})
		if err != nil {
			return nil, err
		}
		for i, t := range types {
			name := a.GetName()
			if len(types) > 1 {
				name += "_" + strconv.Itoa(i)
			}
			defs = append(defs, &tfpb.NodeDef{Name: name, Op: "_Arg", Attr: map[string]*tfpb.AttrValue{
				"T": typeValue(tfpb.DataType(t)), "index": integer(int64(len(bd.args)))}})
			bd.args = append(bd.args, t)
		}
	}
	return defs, nil
}

// returns adds the _Retval nodes.
func (in *instance) returns(caller *Node, bd *body, defs []*tfpb.NodeDef) ([]*tfpb.NodeDef, error) {
	for _, a := range in.f.GetSignature().GetOutputArg() {
		types, err := in.im.argTypes(caller, []*tfpb.OpDef_ArgDef{a})
		if err != nil {
			return nil, err
		}
		from, ok := in.f.GetRet()[a.GetName()]
		if !ok {
			return nil, status.Errorf(status.InvalidArgument, "Return %s missing.", a.GetName())
		}
		for i, t := range types {
			input := from
			if len(types) > 1 {
				input += ":" + strconv.Itoa(i)
			}
			defs = append(defs, &tfpb.NodeDef{Name: fmt.Sprintf("_retval_%s_%d", a.GetName(), len(bd.ret)), Op: "_Retval", Input: []string{input},
				Attr: map[string]*tfpb.AttrValue{"T": typeValue(tfpb.DataType(t)), "index": integer(int64(len(bd.ret)))}})
			bd.ret = append(bd.ret, t)
		}
	}
	return defs, nil
}

// substitute returns a copy of a node with the values of the function's attributes in place of their
// names. The message belongs to all instances, so it is not changed.
func (in *instance) substitute(d *tfpb.NodeDef) (*tfpb.NodeDef, error) {
	def := &tfpb.NodeDef{Name: d.GetName(), Op: d.GetOp(), Device: d.GetDevice(), Input: d.GetInput(), Attr: make(map[string]*tfpb.AttrValue, len(d.GetAttr()))}
	for name, v := range d.GetAttr() {
		value, err := in.value(v)
		if err != nil {
			return nil, status.From(err).WithPrefix("node " + strconv.Quote(d.GetName()) + ": attribute " + strconv.Quote(name))
		}
		def.Attr[name] = value
	}
	return def, nil
}

// value replaces the names of attributes in a value, also in the attributes of a function that the
// value names.
func (in *instance) value(v *tfpb.AttrValue) (*tfpb.AttrValue, error) {
	switch {
	case v.GetPlaceholder() != "":
		value := in.values[v.GetPlaceholder()]
		if value == nil {
			return nil, status.Errorf(status.InvalidArgument, "Failed to bind the placeholder %q: the function has no such attribute", v.GetPlaceholder())
		}
		return value, nil
	case v.GetFunc() != nil && len(v.GetFunc().GetAttr()) > 0:
		f := &tfpb.NameAttrList{Name: v.GetFunc().GetName(), Attr: make(map[string]*tfpb.AttrValue, len(v.GetFunc().GetAttr()))}
		for name, a := range v.GetFunc().GetAttr() {
			value, err := in.direct(a)
			if err != nil {
				return nil, err
			}
			f.Attr[name] = value
		}
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_Func{Func: f}}, nil
	}
	return v, nil
}

// direct is value for the attribute of a function that a value names. Functions that name functions
// that name functions are not followed, so that a message cannot nest without end.
func (in *instance) direct(v *tfpb.AttrValue) (*tfpb.AttrValue, error) {
	if v.GetPlaceholder() == "" {
		return v, nil
	}
	return in.value(v)
}

// addOutputs records the values that a node of the body has.
func (in *instance) addOutputs(n *Node) error {
	index := 0
	for _, a := range n.OpDef.GetOutputArg() {
		types, err := in.im.argTypes(n, []*tfpb.OpDef_ArgDef{a})
		if err != nil {
			return err
		}
		name := n.Name + ":" + a.GetName()
		list := make([]Output, len(types))
		for i := range types {
			list[i] = Output{Node: n, Index: index + i}
			in.outputs[name+":"+strconv.Itoa(i)] = list[i : i+1]
		}
		in.outputs[name] = list
		index += len(types)
	}
	return nil
}

// nameArgs records the arguments under their names.
func (in *instance) nameArgs(nodes []*Node) error {
	next := 0
	caller := &Node{Name: in.f.GetSignature().GetName(), Def: &tfpb.NodeDef{Attr: in.values}}
	for _, a := range in.f.GetSignature().GetInputArg() {
		types, err := in.im.argTypes(caller, []*tfpb.OpDef_ArgDef{a})
		if err != nil {
			return err
		}
		list := make([]Output, len(types))
		for i := range types {
			list[i] = Output{Node: nodes[next+i]}
			in.outputs[a.GetName()+":"+strconv.Itoa(i)] = list[i : i+1]
		}
		in.outputs[a.GetName()] = list
		next += len(types)
	}
	return nil
}

// resolve returns the outputs that an input of the body names.
func (in *instance) resolve(text string) []Output {
	if list, ok := in.outputs[text]; ok {
		return list
	}
	// The index 0 of an argument may be written, as in a graph.
	return in.outputs[strings.TrimSuffix(text, ":0")]
}

// prune leaves out the nodes that no result, no control result and no stateful node needs, as
// TensorFlow does.
func (in *instance) prune(g *Graph) (*Graph, error) {
	keep := make([]bool, len(g.Nodes))
	var queue []*Node
	add := func(n *Node) {
		if !keep[n.ID] {
			keep[n.ID] = true
			queue = append(queue, n)
		}
	}
	for _, n := range g.Nodes {
		if k := kindOf(n.Op); n.OpDef.GetIsStateful() || k == kindArg || k == kindRetval || in.im.lib.find(n.Op) != nil {
			add(n)
		}
	}
	for _, name := range in.f.GetControlRet() {
		n := in.im.byName[name]
		if n == nil {
			return nil, status.Errorf(status.InvalidArgument, "the control result %q is no node of the function", name)
		}
		add(n)
	}
	for i := 0; i < len(queue); i++ {
		for _, o := range queue[i].In {
			add(o.Node)
		}
		for _, c := range queue[i].ControlIn {
			add(c)
		}
	}
	return filter(g, keep), nil
}

// filter returns the graph of the nodes that are kept. It changes the nodes of g. All inputs of a node
// that is kept are kept.
func filter(g *Graph, keep []bool) *Graph {
	nodes := make([]*Node, 0, len(g.Nodes))
	for _, n := range g.Nodes {
		if keep[n.ID] {
			nodes = append(nodes, n)
		}
	}
	for _, n := range nodes {
		n.Out = slices.DeleteFunc(n.Out, func(e Edge) bool { return !keep[e.To.ID] })
	}
	for i, n := range nodes {
		n.ID = i
	}
	return &Graph{Nodes: nodes, Library: g.Library, Producer: g.Producer}
}
