package graph

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
)

// The methods below return the value of an attribute of the op's definition. Import has checked its
// kind. An attribute that does not exist gives the zero value.

// Attr returns an attribute as it was registered; nil when there is none.
func (n *Node) Attr(name string) *tfpb.AttrValue { return n.Def.GetAttr()[name] }

// Int returns an attribute of the kind int.
func (n *Node) Int(name string) int64 { return n.Attr(name).GetI() }

// Float returns an attribute of the kind float.
func (n *Node) Float(name string) float32 { return n.Attr(name).GetF() }

// Bool returns an attribute of the kind bool.
func (n *Node) Bool(name string) bool { return n.Attr(name).GetB() }

// Text returns an attribute of the kind string.
func (n *Node) Text(name string) string { return string(n.Attr(name).GetS()) }

// Type returns an attribute of the kind type.
func (n *Node) Type(name string) tensor.DType { return tensor.DType(n.Attr(name).GetType()) }

// Types returns an attribute of the kind list(type).
func (n *Node) Types(name string) []tensor.DType {
	list := n.Attr(name).GetList().GetType()
	types := make([]tensor.DType, len(list))
	for i, t := range list {
		types[i] = tensor.DType(t)
	}
	return types
}

// Ints returns an attribute of the kind list(int).
func (n *Node) Ints(name string) []int64 { return n.Attr(name).GetList().GetI() }

// Shape returns the extents of an attribute of the kind shape, −1 for one that is not known. It
// returns false when the rank is not known.
func (n *Node) Shape(name string) (dims []int64, known bool) {
	s := n.Attr(name).GetShape()
	if s == nil || s.GetUnknownRank() {
		return nil, false
	}
	for _, d := range s.GetDim() {
		dims = append(dims, d.GetSize())
	}
	return dims, true
}
