package library

import (
	"crypto/sha256"
	"encoding/hex"
	"sync"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// library is the functions of a graph as they are added to a context. Graphs of different clients,
// which may share a context, have different functions with equal names, so each name gets a suffix
// made of the content of the library. The functions of a graph that have random nodes are its own: as in
// TensorFlow their sequences begin with the graph.
type library struct {
	names map[string]string // in the context, by the name in the graph
	all   []callee
	waits map[string]bool // those that may wait for others, by the name in the graph
	// containers are those that nodes of the functions name.
	containers []string
	// salt makes the names those of one graph, unless it is "".
	salt string

	mu       sync.Mutex // guards the fields below
	now      *library   // what at made last
	nowNames []string   // the names of containers that are in it
}

// callee is a function that others may call.
type callee struct {
	name string
	def  []byte
}

func newLibrary(functions []*tfpb.FunctionDef, salt string) (*library, error) {
	l := &library{names: map[string]string{}, salt: salt}
	sum := sha256.New()
	sum.Write([]byte(salt))
	for _, f := range functions {
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(f)
		if err != nil {
			return nil, err
		}
		sum.Write(b)
	}
	suffix := "_" + hex.EncodeToString(sum.Sum(nil)[:6])
	for _, f := range functions {
		name := f.GetSignature().GetName()
		l.names[name] = name + suffix
	}
	l.waits = l.callers(functions, hasWait)
	for _, f := range functions {
		f = proto.CloneOf(f)
		f.Signature.Name = l.names[f.GetSignature().GetName()]
		for _, n := range f.GetNodeDef() {
			l.rename(n)
		}
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(f)
		if err != nil {
			return nil, err
		}
		l.all = append(l.all, callee{f.GetSignature().GetName(), b})
	}
	return l, nil
}

// has reports whether an op is the name of a function.
func (l *library) has(op string) bool { return l.names[op] != "" }

// rename replaces the names of functions in a node, which the caller owns with the map of its
// attributes. The attributes themselves may be shared.
func (l *library) rename(n *tfpb.NodeDef) {
	if name := l.names[n.GetOp()]; name != "" {
		n.Op = name
	}
	for key, a := range n.GetAttr() {
		if a.GetFunc() == nil && len(a.GetList().GetFunc()) == 0 {
			continue
		}
		a = proto.CloneOf(a)
		n.Attr[key] = a
		l.renameFunc(a.GetFunc())
		for _, f := range a.GetList().GetFunc() {
			l.renameFunc(f)
		}
	}
}

// renameIn replaces the names of functions in the nodes of a function.
func (l *library) renameIn(f *tfpb.FunctionDef) {
	for _, n := range f.GetNodeDef() {
		l.rename(n)
	}
}

// renameFunc renames a function in an attribute, and those in its own attributes.
func (l *library) renameFunc(f *tfpb.NameAttrList) {
	if f == nil {
		return
	}
	if name := l.names[f.GetName()]; name != "" {
		f.Name = name
	}
	for _, a := range f.GetAttr() {
		l.renameFunc(a.GetFunc())
		for _, inner := range a.GetList().GetFunc() {
			l.renameFunc(inner)
		}
	}
}
