package graph

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// Library is the functions of a graph by name. It does not change after Import.
type Library struct {
	functions map[string]*function
	producer  int32
}

type function struct{ def *tfpb.FunctionDef }

func newLibrary(def *tfpb.FunctionDefLibrary, b *budget) (*Library, error) {
	if len(def.GetFunction()) == 0 {
		return nil, nil
	}
	l := &Library{functions: make(map[string]*function, len(def.GetFunction()))}
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
		if err := b.takeNodes("function \""+name+"\"", len(f.GetNodeDef())); err != nil {
			return nil, err
		}
		l.functions[name] = &function{def: f}
	}
	return l, nil
}

// find returns a function; nil when there is none. l may be nil.
func (l *Library) find(name string) *function {
	if l == nil {
		return nil
	}
	return l.functions[name]
}

// check checks the functions that the nodes of g call.
func (l *Library) check(g *Graph, b *budget) error { return nil }
