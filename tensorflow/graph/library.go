package graph

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// Library is the functions of a graph by name. It does not change after Import, which has made a
// body for each function and set of attributes that a node of the graph may call.
type Library struct {
	functions map[string]*tfpb.FunctionDef
	bodies    map[string]*body // by bodyKey
	producer  int32
}

// body is a function for one set of attributes.
type body struct {
	name      string
	graph     *Graph // with an _Arg node for each argument and a _Retval node for each result
	args, ret []tensor.DType
	// placed are the nodes to compare with the device of a caller: those with the first two values of each
	// part of a device. One that differs from a node of the body differs from one of these.
	placed []*Node
}

func newLibrary(def *tfpb.FunctionDefLibrary, producer int32, b *budget) (*Library, error) {
	if len(def.GetFunction()) == 0 {
		return nil, nil
	}
	l := &Library{functions: make(map[string]*tfpb.FunctionDef, len(def.GetFunction())), bodies: make(map[string]*body), producer: producer}
	for _, f := range def.GetFunction() {
		name := f.GetSignature().GetName()
		if err := checkName("function", name); err != nil {
			return nil, err
		}
		switch {
		case l.functions[name] != nil:
			return nil, status.Errorf(status.InvalidArgument, "the library has two functions named %q", name)
		case b.o.Set.OpDef(name) != nil || builtin(name) != nil:
			return nil, status.Errorf(status.InvalidArgument, "Cannot add function '%s' because an op with the same name already exists.", name)
		}
		size := 0
		for _, a := range f.GetSignature().GetAttr() {
			size += proto.Size(a.GetDefaultValue())
		}
		if size > maxDefaults {
			return nil, status.Errorf(status.ResourceExhausted, "function %q: the default values of its attributes have %d bytes, at most %d are allowed: pass the values in its calls", name, size, maxDefaults)
		}
		l.functions[name] = f
	}
	return l, nil
}

// Functions returns the functions, sorted by name. They are shared and must not be changed. l may be
// nil.
func (l *Library) Functions() []*tfpb.FunctionDef {
	if l == nil {
		return nil
	}
	list := make([]*tfpb.FunctionDef, 0, len(l.functions))
	for _, name := range slices.Sorted(maps.Keys(l.functions)) {
		list = append(list, l.functions[name])
	}
	return list
}

// find returns a function; nil when there is none. l may be nil.
func (l *Library) find(name string) *tfpb.FunctionDef {
	if l == nil {
		return nil
	}
	return l.functions[name]
}

// call is one function that a node calls.
type call struct {
	name      string
	attrs     map[string]*tfpb.AttrValue
	args, ret []tensor.DType // as the node wants them
}

// calls returns the functions that a node calls: for If those of then and else, for While those of
// the condition and the body, for Case those of all branches.
func (l *Library) calls(n *Node) []call {
	named := func(f *tfpb.NameAttrList, args, ret []tensor.DType) call {
		return call{name: f.GetName(), attrs: f.GetAttr(), args: args, ret: ret}
	}
	if l.find(n.Op) != nil {
		return []call{{name: n.Op, attrs: n.Def.GetAttr(), args: baseTypes(n.InTypes), ret: baseTypes(n.OutTypes)}}
	}
	switch kindOf(n.Op) {
	case kindCall:
		return []call{named(n.Attr("f").GetFunc(), n.Types("Tin"), n.Types("Tout"))}
	case kindIf:
		return []call{named(n.Attr("then_branch").GetFunc(), n.Types("Tin"), n.Types("Tout")),
			named(n.Attr("else_branch").GetFunc(), n.Types("Tin"), n.Types("Tout"))}
	case kindWhile:
		return []call{named(n.Attr("cond").GetFunc(), n.Types("T"), nil), named(n.Attr("body").GetFunc(), n.Types("T"), n.Types("T"))}
	case kindCase:
		var list []call
		for _, f := range n.Attr("branches").GetList().GetFunc() {
			list = append(list, named(f, n.Types("Tin"), n.Types("Tout")))
		}
		return list
	}
	return nil
}

func baseTypes(types []tensor.DType) []tensor.DType {
	base := slices.Clone(types)
	for i := range base {
		base[i] = base[i].Base()
	}
	return base
}

// body returns the body of a call; nil when Import has made none.
func (l *Library) body(c call) *body {
	if l == nil {
		return nil
	}
	return l.bodies[bodyKey(c, l.find(c.name))]
}

// bodyKey is the name of a function with the attributes of its signature.
func bodyKey(c call, f *tfpb.FunctionDef) string {
	var b strings.Builder
	b.WriteString(c.name)
	for _, a := range f.GetSignature().GetAttr() {
		v := c.attrs[a.GetName()]
		if v == nil {
			v = a.GetDefaultValue()
		}
		text, err := proto.MarshalOptions{Deterministic: true}.Marshal(v)
		if err != nil { // a message that was parsed can be written
			continue
		}
		b.WriteString(";" + strconv.Quote(a.GetName()) + "=" + strconv.Quote(string(text)))
	}
	return b.String()
}

// check makes the bodies of all functions that the nodes of g may call, however deep.
func (l *Library) check(g *Graph, b *budget) error {
	// Without a library a call of a function is an error too.
	queue := []*Graph{g}
	for i := 0; i < len(queue); i++ {
		for _, n := range queue[i].Nodes {
			calls := l.calls(n)
			for _, c := range calls {
				added, err := l.checkCall(n, c, b)
				if err != nil {
					return NodeError(n.Name, err)
				}
				if added != nil {
					queue = append(queue, added.graph)
				}
			}
			if err := l.checkLoopCond(n, calls); err != nil {
				return NodeError(n.Name, err)
			}
		}
	}
	return nil
}

// checkCall compares a call with its function, and makes the body at the first call.
func (l *Library) checkCall(n *Node, c call, b *budget) (added *body, err error) {
	f := l.find(c.name)
	if f == nil {
		return nil, status.Errorf(status.InvalidArgument, "op %s calls the function %q, which is not in the library of the graph", n.Op, c.name)
	}
	key := bodyKey(c, f)
	bd := l.bodies[key]
	if bd == nil {
		if len(l.bodies) == maxBodies || len(key) > maxBodyKey {
			return nil, status.Errorf(status.ResourceExhausted, "function %q is called with too many or too large sets of attributes: at most %d functions for different attributes are allowed, with at most %d bytes of them", c.name, maxBodies, maxBodyKey)
		}
		if bd, err = l.instantiate(f, c, b); err != nil {
			return nil, err
		}
		if bd.placed, err = placed(bd.graph.Nodes); err != nil {
			return nil, status.From(err).WithPrefix("function " + strconv.Quote(c.name))
		}
		l.bodies[key], added = bd, bd
	}
	isCond := kindOf(n.Op) == kindWhile && c.ret == nil && n.Attr("cond").GetFunc().GetName() == c.name
	if !slices.Equal(bd.args, c.args) || !isCond && !slices.Equal(bd.ret, c.ret) {
		return nil, status.Errorf(status.InvalidArgument, "function %q takes %v and returns %v, but op %s passes %v and wants %v", c.name, bd.args, bd.ret, n.Op, c.args, c.ret)
	}
	for _, inner := range bd.placed {
		if err := samePlace(inner, n); err != nil {
			return nil, status.From(err).WithPrefix("function " + strconv.Quote(c.name))
		}
	}
	return added, nil
}

func (l *Library) checkLoopCond(n *Node, calls []call) error {
	if kindOf(n.Op) != kindWhile {
		return nil
	}
	if cond := l.body(calls[0]); len(cond.ret) != 1 {
		return status.Errorf(status.InvalidArgument, "function %q is the condition of a While and returns %d values, want one", cond.name, len(cond.ret))
	}
	return nil
}

// placed returns the nodes for body.placed, in their order.
func placed(nodes []*Node) ([]*Node, error) {
	var list []*Node
	var jobs, replicas, tasks []string // those that list has
	for _, n := range nodes {
		if n.Device == "" {
			continue
		}
		p, err := cluster.ParsePattern(n.Device)
		if err != nil {
			return nil, status.From(err).WithPrefix("node " + strconv.Quote(n.Name))
		}
		fresh := p.HasJob && addPart(&jobs, p.Job)
		fresh = p.HasReplica && addPart(&replicas, strconv.Itoa(p.Replica)) || fresh
		fresh = p.HasTask && addPart(&tasks, strconv.Itoa(p.Task)) || fresh
		if fresh {
			list = append(list, n)
		}
	}
	return list, nil
}

// addPart adds a value that is not in the list, if it has less than two.
func addPart(list *[]string, value string) bool {
	if len(*list) == 2 || slices.Contains(*list, value) {
		return false
	}
	*list = append(*list, value)
	return true
}

// samePlace returns an error for a node of a function that is placed on another task than the caller.
// A device of the same task is as good as the caller's.
func samePlace(n, caller *Node) error {
	if n.Device == "" {
		return nil
	}
	p, err := cluster.ParsePattern(n.Device)
	if err != nil {
		return status.From(err).WithPrefix("node " + strconv.Quote(n.Name))
	}
	d, err := cluster.ParseDevice(caller.Device)
	if err != nil {
		return nil // the caller is in a function itself, and has been checked
	}
	p.HasType, p.HasIndex = false, false
	if !p.Matches(d) {
		return status.Errorf(status.Unimplemented, "node %q is placed on %s, and its caller %q on %s: a function must run on one task", n.Name, n.Device, caller.Name, caller.Device)
	}
	return nil
}
