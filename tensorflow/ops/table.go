package ops

import (
	"fmt"
	"io"
	"slices"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// WriteTable writes the table of ops in docs/ops.md, in Markdown: each op with the types that its
// kernel supports.
func (r *Registry) WriteTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString("| op | types | inputs and outputs |\n| --- | --- | --- |\n")
	for _, name := range r.Ops() {
		def := r.ops[name].def
		fmt.Fprintf(&b, "| `%s` | %s | `%s` |\n", name, r.typesText(def), signature(def))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// mainAttrs are the attributes that may say the type of an op's elements, the best one first.
var mainAttrs = []string{"dtype", "T", "Tparams", "SrcT", "Tout", "Tidx"} // Tidx in Range only

// mainAttr returns the attribute that says the type of the elements; nil if there is none.
func mainAttr(def *tfpb.OpDef) *tfpb.OpDef_AttrDef {
	for _, name := range mainAttrs {
		for _, a := range def.GetAttr() {
			if a.GetName() == name && a.GetType() == "type" && (name != "Tidx" || def.GetOutputArg()[0].GetTypeAttr() == name) {
				return a
			}
		}
	}
	return nil
}

func (r *Registry) typesText(def *tfpb.OpDef) string {
	attr := mainAttr(def)
	if attr == nil {
		return "–"
	}
	types, all := r.types(def, attr)
	if all {
		return "all"
	}
	var names []string
	for _, d := range types {
		names = append(names, d.String())
	}
	return strings.Join(names, ", ")
}

// types returns the types of an attribute for which there is a kernel, and whether these are all that
// a tensor can have, resources and variants included.
func (r *Registry) types(def *tfpb.OpDef, attr *tfpb.OpDef_AttrDef) (types []tensor.DType, all bool) {
	all = true
	for d := tensor.Float32; d <= tensor.Uint64; d++ {
		if allowed := attr.GetAllowedValues().GetList().GetType(); allowed != nil && !slices.Contains(allowed, tfpb.DataType(d)) {
			all = false
			continue
		}
		_, err := r.ops[def.GetName()].new(sampleNode(def, attr, d), &State{registry: r})
		if status.CodeOf(err) == status.Unimplemented {
			all = false
			continue
		}
		types = append(types, d)
	}
	return types, all
}

// sampleNode returns a node of an op whose attribute attr has the type d. It may lack other attributes:
// then its kernel is refused with another code than Unimplemented.
func sampleNode(def *tfpb.OpDef, attr *tfpb.OpDef_AttrDef, d tensor.DType) *graph.Node {
	n := &graph.Node{
		Name: def.GetName(), Op: def.GetName(), OpDef: def,
		Def: &tfpb.NodeDef{Name: def.GetName(), Op: def.GetName(), Attr: make(map[string]*tfpb.AttrValue)},
	}
	for _, a := range def.GetAttr() {
		v := a.GetDefaultValue()
		switch {
		case a.GetName() == attr.GetName():
			v = typeValue(d)
		case v == nil && a.GetType() == "type":
			v = typeValue(tensor.Float32)
			if allowed := a.GetAllowedValues().GetList().GetType(); len(allowed) > 0 && !slices.Contains(allowed, tfpb.DataType_DT_FLOAT) {
				v = typeValue(tensor.Int32)
			}
		}
		if v != nil {
			n.Def.Attr[a.GetName()] = v
		}
	}
	return n
}

func typeValue(d tensor.DType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: tfpb.DataType(d)}}
}

// signature returns the inputs and outputs of an op in the notation of ParseDef.
func signature(def *tfpb.OpDef) string {
	text := argsText(def.GetInputArg())
	if len(def.GetOutputArg()) > 0 {
		text += " -> " + argsText(def.GetOutputArg())
	}
	return text
}

func argsText(args []*tfpb.OpDef_ArgDef) string {
	var texts []string
	for _, a := range args {
		t := a.GetTypeAttr() + a.GetTypeListAttr()
		if t == "" {
			t = tensor.DType(a.GetType()).String()
		}
		if a.GetIsRef() {
			t = "Ref(" + t + ")"
		}
		if a.GetNumberAttr() != "" {
			t = a.GetNumberAttr() + "*" + t
		}
		texts = append(texts, a.GetName()+": "+t)
	}
	return "(" + strings.Join(texts, ", ") + ")"
}
