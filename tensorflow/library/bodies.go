package library

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// The nodes of a graph may call functions of its library, as an op or in an attribute, and these may
// call others. What holds for a node in a body holds for the node that calls it.

// calls returns the functions of the library that a node names, by their names in the graph.
func (l *library) calls(n *tfpb.NodeDef) (names []string) {
	add := func(name string) {
		if l.has(name) {
			names = append(names, name)
		}
	}
	add(n.GetOp())
	var each func(*tfpb.AttrValue)
	each = func(a *tfpb.AttrValue) {
		for _, f := range append([]*tfpb.NameAttrList{a.GetFunc()}, a.GetList().GetFunc()...) {
			add(f.GetName())
			for _, inner := range f.GetAttr() {
				each(inner)
			}
		}
	}
	for _, a := range n.GetAttr() {
		each(a)
	}
	return names
}

// callers returns those functions for which is says yes, and all that call them.
func (l *library) callers(functions []*tfpb.FunctionDef, is func(*tfpb.FunctionDef) bool) map[string]bool {
	calledBy := map[string][]string{}
	found := map[string]bool{}
	var todo []string
	for _, f := range functions {
		name := f.GetSignature().GetName()
		for _, n := range f.GetNodeDef() {
			for _, callee := range l.calls(n) {
				calledBy[callee] = append(calledBy[callee], name)
			}
		}
		if is(f) {
			todo = append(todo, name)
		}
	}
	for len(todo) > 0 {
		name := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !found[name] {
			found[name] = true
			todo = append(todo, calledBy[name]...)
		}
	}
	return found
}

// hasWait reports whether a node of the body itself may wait for others.
func hasWait(f *tfpb.FunctionDef) bool {
	for _, n := range f.GetNodeDef() {
		if mayWait(n.GetOp()) {
			return true
		}
	}
	return false
}

// waits reports whether a node, or one of a body that it calls, may wait for others.
func (c *cutter) waits(n *node) bool {
	if mayWait(n.op) {
		return true
	}
	for _, name := range c.library.calls(n.def) {
		if c.library.waits[name] {
			return true
		}
	}
	return false
}

// bodiesSupported says whether TensorFlow has a kernel for each node of the bodies that n calls. A
// type that the caller of a function gives is not known here, and fits.
func (c *cutter) bodiesSupported(n *node) error {
	todo := c.library.calls(n.def)
	for len(todo) > 0 {
		f := c.bodies[todo[len(todo)-1]]
		todo = todo[:len(todo)-1]
		delete(c.bodies, f.GetSignature().GetName()) // each once
		for _, def := range f.GetNodeDef() {
			todo = append(todo, c.library.calls(def)...)
			in := &node{name: def.GetName(), op: def.GetOp(), def: def, opDef: c.set.OpDef(def.GetOp())}
			if err := c.supported(in); err != nil {
				return graph.NodeError(n.name, err)
			}
			if err := barrierInBody(def); err != nil {
				return graph.NodeError(n.name, err)
			}
		}
	}
	return nil
}

// types returns the types of an attribute of a node. It has none when the caller of the function that
// the node is in gives it.
func (n *node) types(attr string) (types []tfpb.DataType) {
	a := n.def.GetAttr()[attr]
	if a == nil {
		for _, d := range n.opDef.GetAttr() {
			if d.GetName() == attr {
				a = d.GetDefaultValue()
			}
		}
	}
	switch {
	case a.GetList() != nil:
		return a.GetList().GetType()
	case tensor.DType(a.GetType()) == 0:
		return nil
	}
	return []tfpb.DataType{a.GetType()}
}
