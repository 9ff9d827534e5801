package graph

import (
	"slices"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensorproto"
)

// checkAttrs compares the attributes of a node with the definition of its op, and adds those that
// are left out. Attributes that the op does not declare stay, and mean nothing.
func (im *importer) checkAttrs(n *Node) error {
	declared := 0
	for _, a := range n.OpDef.GetAttr() {
		v, ok := n.Def.GetAttr()[a.GetName()]
		switch {
		case ok && v != nil:
			declared++
			if err := im.checkAttr(a, v); err != nil {
				return attrError(n, a.GetName(), err)
			}
		case a.GetDefaultValue() == nil:
			return status.Errorf(status.InvalidArgument, "NodeDef missing attr '%s' from Op %s: node %q", a.GetName(), n.Op, n.Name)
		default:
			declared++
			if n.Def.Attr == nil {
				n.Def.Attr = make(map[string]*tfpb.AttrValue)
			}
			n.Def.Attr[a.GetName()] = a.GetDefaultValue()
		}
	}
	if len(n.Def.GetAttr()) == declared {
		return nil
	}
	for name, v := range n.Def.GetAttr() {
		if slices.ContainsFunc(n.OpDef.GetAttr(), func(a *tfpb.OpDef_AttrDef) bool { return a.GetName() == name }) {
			continue
		}
		// A newer master may know more attributes, and each adds hints. TensorFlow ignores them too;
		// their constants count, since the graph holds them.
		if err := im.takeConstants(v); err != nil {
			return attrError(n, name, err)
		}
	}
	return nil
}

func attrError(n *Node, attr string, err error) error {
	return status.From(err).WithPrefix("node " + strconv.Quote(n.Name) + " (" + n.Op + "): attribute " + strconv.Quote(attr))
}

// checkAttr compares a value with the declaration of its attribute.
func (im *importer) checkAttr(a *tfpb.OpDef_AttrDef, v *tfpb.AttrValue) error {
	if p := v.GetPlaceholder(); p != "" {
		return status.Errorf(status.InvalidArgument, "its value is that of %q of a function, and the node is in none", p)
	}
	kind := a.GetType()
	element, isList := strings.CutPrefix(kind, "list(")
	if isList {
		element = strings.TrimSuffix(element, ")")
	}
	if got := kindOfValue(v); got != kind && (!isList || got != "list()") {
		return status.Errorf(status.InvalidArgument, "a value of the kind %s where %s is wanted", got, kind)
	}
	if err := checkMinimum(a, v, isList); err != nil {
		return err
	}
	if err := checkAllowed(a, v, element); err != nil {
		return err
	}
	return im.checkValue(v)
}

func checkMinimum(a *tfpb.OpDef_AttrDef, v *tfpb.AttrValue, isList bool) error {
	switch {
	case !a.GetHasMinimum():
	case isList && int64(listLen(v.GetList())) < a.GetMinimum():
		return status.Errorf(status.InvalidArgument, "a list of %d, at least %d are wanted", listLen(v.GetList()), a.GetMinimum())
	case !isList && v.GetI() < a.GetMinimum():
		return status.Errorf(status.InvalidArgument, "%d is below the minimum %d", v.GetI(), a.GetMinimum())
	}
	return nil
}

// checkAllowed compares types and strings with those that the definition allows.
func checkAllowed(a *tfpb.OpDef_AttrDef, v *tfpb.AttrValue, element string) error {
	allowed := a.GetAllowedValues().GetList()
	if allowed == nil {
		return nil
	}
	switch element {
	case "type":
		types := v.GetList().GetType()
		if v.GetList() == nil {
			types = []tfpb.DataType{v.GetType()}
		}
		for _, t := range types {
			if !slices.Contains(allowed.GetType(), t) {
				return status.Errorf(status.InvalidArgument, "the type %v is not in the list of allowed types: %v", tensor.DType(t), dtypes(allowed.GetType()))
			}
		}
	case "string":
		texts := v.GetList().GetS()
		if v.GetList() == nil {
			texts = [][]byte{v.GetS()}
		}
		for _, s := range texts {
			if !slices.ContainsFunc(allowed.GetS(), func(b []byte) bool { return string(b) == string(s) }) {
				return status.Errorf(status.InvalidArgument, "%q is not in the list of allowed values: %q", s, allowed.GetS())
			}
		}
	}
	return nil
}

func dtypes(list []tfpb.DataType) []tensor.DType {
	types := make([]tensor.DType, len(list))
	for i, t := range list {
		types[i] = tensor.DType(t)
	}
	return types
}

// kindOfValue returns the kind of a value as an OpDef names it. An empty list is "list()": it may be
// a list of anything. A list with elements of two kinds is "list(mixed)".
func kindOfValue(v *tfpb.AttrValue) string {
	switch v.GetValue().(type) {
	case *tfpb.AttrValue_S:
		return "string"
	case *tfpb.AttrValue_I:
		return "int"
	case *tfpb.AttrValue_F:
		return "float"
	case *tfpb.AttrValue_B:
		return "bool"
	case *tfpb.AttrValue_Type:
		return "type"
	case *tfpb.AttrValue_Shape:
		return "shape"
	case *tfpb.AttrValue_Tensor:
		return "tensor"
	case *tfpb.AttrValue_Func:
		return "func"
	case *tfpb.AttrValue_Placeholder:
		return "placeholder"
	case *tfpb.AttrValue_List:
		kind := "list()"
		for _, f := range listFields(v.GetList()) {
			switch {
			case f.len == 0:
			case kind != "list()":
				return "list(mixed)"
			default:
				kind = "list(" + f.kind + ")"
			}
		}
		return kind
	}
	return "nothing"
}

type listField struct {
	kind string
	len  int
}

func listFields(l *tfpb.AttrValue_ListValue) [8]listField {
	return [8]listField{{"string", len(l.GetS())}, {"int", len(l.GetI())}, {"float", len(l.GetF())}, {"bool", len(l.GetB())},
		{"type", len(l.GetType())}, {"shape", len(l.GetShape())}, {"tensor", len(l.GetTensor())}, {"func", len(l.GetFunc())}}
}

func listLen(l *tfpb.AttrValue_ListValue) int {
	n := 0
	for _, f := range listFields(l) {
		n += f.len
	}
	return n
}

// checkValue checks the content of a value: types, shapes, tensors.
func (im *importer) checkValue(v *tfpb.AttrValue) error {
	l := v.GetList()
	types, shapes := l.GetType(), l.GetShape()
	switch v.GetValue().(type) {
	case *tfpb.AttrValue_Type:
		types = []tfpb.DataType{v.GetType()}
	case *tfpb.AttrValue_Shape:
		shapes = []*tfpb.TensorShapeProto{v.GetShape()}
	}
	for _, t := range types {
		if !tensor.DType(t).Base().Valid() {
			return status.Errorf(status.InvalidArgument, "%d is no type", int32(t))
		}
		if tensor.DType(t).IsRef() { // only the definition of an op makes references
			return status.Errorf(status.InvalidArgument, "AttrValue must not have reference type value of %v", tensor.DType(t))
		}
	}
	for _, s := range shapes {
		if err := checkPartialShape(s); err != nil {
			return err
		}
	}
	return im.takeConstants(v)
}

// checkPartialShape checks a shape whose extents may be −1, which means unknown.
func checkPartialShape(s *tfpb.TensorShapeProto) error {
	if s.GetUnknownRank() {
		if len(s.GetDim()) > 0 {
			return status.Errorf(status.InvalidArgument, "a shape of unknown rank has %d dimensions", len(s.GetDim()))
		}
		return nil
	}
	if len(s.GetDim()) > tensor.MaxDims {
		return status.Errorf(status.InvalidArgument, "a shape has %d dimensions, at most %d are possible", len(s.GetDim()), tensor.MaxDims)
	}
	known := make([]int64, 0, len(s.GetDim()))
	for i, d := range s.GetDim() {
		switch size := d.GetSize(); {
		case size < -1:
			return status.Errorf(status.InvalidArgument, "dimension %d of a shape is %d: it must not be negative, or −1 when it is not known", i, size)
		case size >= 0:
			known = append(known, size)
		}
	}
	_, err := tensor.NewShape(known...)
	return err
}

// takeConstants checks the types and shapes of the tensors in a value, and counts their bytes.
func (im *importer) takeConstants(v *tfpb.AttrValue) error {
	tensors := v.GetList().GetTensor()
	if t := v.GetTensor(); t != nil {
		tensors = []*tfpb.TensorProto{t}
	}
	for _, p := range tensors {
		dtype, err := tensorproto.DTypeFromProto(p.GetDtype())
		if err != nil {
			return status.Errorf(status.InvalidArgument, "its tensor: %s", status.From(err).Message())
		}
		shape, err := tensorproto.ShapeFromProto(p.GetTensorShape())
		if err != nil {
			return status.Errorf(status.InvalidArgument, "its tensor: %s", status.From(err).Message())
		}
		size := int64(dtype.Size())
		if !dtype.Plain() {
			size = tensor.ElementOverhead
		}
		if n := shape.Elements(); n > im.budget.constants/size {
			return status.Errorf(status.ResourceExhausted, "its tensor has the type %v and the shape %v: with it the constants of the graph take more than %d bytes", dtype, shape, im.budget.o.MaxConstantBytes)
		}
		im.budget.constants -= shape.Elements() * size
	}
	return nil
}
