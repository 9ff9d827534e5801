package ops

import (
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// ParseDef returns the definition of an op from its notation, which follows that of TensorFlow's
// REGISTER_OP in one line:
//
//	Assign(ref: Ref(T), value: T) -> (output_ref: Ref(T)); T: type; use_locking: bool = true
//	ConcatV2(values: N*T, axis: I) -> (output: T); N: int >= 2; T: type; I: {int32, int64} = int32
//	_Send(tensor: T); T: type; tensor_name: string; client_terminated: bool = false; stateful
//
// The type of an argument is an attribute or a type by TensorFlow's name. An attribute of the kind
// list(type) makes the argument a list. {…} lists what an attribute may be: types, or texts in
// quotes; number, real, float_type, analytic (floats and complex), bits and index stand for lists of
// types. The words stateful, commutative,
// aggregate and uninitialized set the flags of the definition. A notation that is wrong is
// InvalidArgument.
func ParseDef(notation string) (*tfpb.OpDef, error) {
	head, rest, _ := strings.Cut(notation, ";")
	def := &tfpb.OpDef{}
	p := parser{notation: notation, def: def}
	for _, part := range splitOutside(rest, ';') {
		if part = strings.TrimSpace(part); part != "" {
			p.attr(part)
		}
	}
	p.signature(strings.TrimSpace(head))
	if p.err != nil {
		return nil, p.err
	}
	return def, nil
}

// typeLists are the names of lists of types in a notation, as in TensorFlow's op_def_builder.
func typeLists(name string) ([]tensor.DType, bool) {
	floats := []tensor.DType{tensor.BFloat16, tensor.Float16, tensor.Float32, tensor.Float64}
	reals := []tensor.DType{
		tensor.Float32, tensor.Float64, tensor.Int32, tensor.Uint8, tensor.Int16, tensor.Int8, tensor.Int64,
		tensor.BFloat16, tensor.Uint16, tensor.Float16, tensor.Uint32, tensor.Uint64,
	}
	switch name {
	case "float_type":
		return floats, true
	case "real":
		return reals, true
	case "number":
		return append(reals, tensor.Complex64, tensor.Complex128,
			tensor.QInt8, tensor.QUint8, tensor.QInt16, tensor.QUint16, tensor.QInt32), true
	case "bits":
		return []tensor.DType{
			tensor.Int8, tensor.Int16, tensor.Int32, tensor.Int64, tensor.Uint8, tensor.Uint16, tensor.Uint32, tensor.Uint64,
		}, true
	case "index":
		return []tensor.DType{tensor.Int32, tensor.Int64}, true
	case "analytic":
		return append(floats, tensor.Complex64, tensor.Complex128), true
	}
	return nil, false
}

// parser holds the state of ParseDef; the first error stays.
type parser struct {
	notation string
	def      *tfpb.OpDef
	err      error
}

func (p *parser) fail(what, value string) {
	if p.err == nil {
		p.err = status.Errorf(status.InvalidArgument, "the notation %q of an op: %s %q", p.notation, what, value)
	}
}

func (p *parser) signature(head string) {
	ins, outs, _ := strings.Cut(head, "->")
	name, args, ok := strings.Cut(ins, "(")
	if p.def.Name = strings.TrimSpace(name); !ok || p.def.Name == "" {
		p.fail("want Name(argument: type, …), have", head)
		return
	}
	p.def.InputArg = p.args("(" + args)
	if strings.TrimSpace(outs) != "" {
		p.def.OutputArg = p.args(outs)
	}
}

// args parses "(a: T, b: N*Ref(T))".
func (p *parser) args(text string) []*tfpb.OpDef_ArgDef {
	text = strings.TrimSpace(text)
	if !strings.HasPrefix(text, "(") || !strings.HasSuffix(text, ")") {
		p.fail("want arguments in brackets, have", text)
		return nil
	}
	var args []*tfpb.OpDef_ArgDef
	for part := range strings.SplitSeq(text[1:len(text)-1], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, typ, ok := strings.Cut(part, ":")
		if !ok {
			p.fail("an argument without a type:", part)
			return nil
		}
		arg := &tfpb.OpDef_ArgDef{Name: strings.TrimSpace(name)}
		typ = strings.TrimSpace(typ)
		if number, element, list := strings.Cut(typ, "*"); list {
			arg.NumberAttr, typ = strings.TrimSpace(number), strings.TrimSpace(element)
		}
		if inner, ref := strings.CutPrefix(typ, "Ref("); ref {
			arg.IsRef, typ = true, strings.TrimSuffix(inner, ")")
		}
		switch a := p.find(typ); {
		case a != nil && a.GetType() == "list(type)":
			arg.TypeListAttr = typ
		case a != nil:
			arg.TypeAttr = typ
		default:
			d, ok := tensor.ParseDType(typ)
			if !ok {
				p.fail("neither an attribute nor a type:", typ)
			}
			arg.Type = tfpb.DataType(d)
		}
		args = append(args, arg)
	}
	return args
}

func (p *parser) find(name string) *tfpb.OpDef_AttrDef {
	for _, a := range p.def.Attr {
		if a.Name == name {
			return a
		}
	}
	return nil
}

// attr parses "name: kind >= minimum = default", or one of the flags.
func (p *parser) attr(text string) {
	switch text {
	case "stateful":
		p.def.IsStateful = true
		return
	case "commutative":
		p.def.IsCommutative = true
		return
	case "aggregate":
		p.def.IsAggregate = true
		return
	case "uninitialized":
		p.def.AllowsUninitializedInput = true
		return
	}
	name, rest, ok := strings.Cut(text, ":")
	if !ok {
		p.fail("an attribute without a kind:", text)
		return
	}
	a := &tfpb.OpDef_AttrDef{Name: strings.TrimSpace(name)}
	kind := strings.TrimSpace(rest)
	minimum := ""
	if k, m, ok := strings.Cut(kind, ">="); ok {
		kind, minimum = strings.TrimSpace(k), strings.TrimSpace(m)
	}
	def, hasDefault := "", false
	if minimum != "" {
		minimum, def, hasDefault = cutDefault(minimum)
	} else {
		kind, def, hasDefault = cutDefault(kind)
	}
	p.kind(a, kind)
	if minimum != "" {
		n, err := strconv.ParseInt(minimum, 10, 64)
		if err != nil {
			p.fail("a minimum that is no number:", minimum)
		}
		a.HasMinimum, a.Minimum = true, n
	}
	if hasDefault {
		a.DefaultValue = p.value(a.Type, def)
	}
	p.def.Attr = append(p.def.Attr, a)
}

// cutDefault cuts "… = default".
func cutDefault(text string) (before, def string, found bool) {
	before, def, found = strings.Cut(text, "=")
	return strings.TrimSpace(before), strings.TrimSpace(def), found
}

// kind sets the type of an attribute and what it may be.
func (p *parser) kind(a *tfpb.OpDef_AttrDef, kind string) {
	list := false
	if inner, ok := strings.CutPrefix(kind, "list("); ok {
		list, kind = true, strings.TrimSuffix(inner, ")")
	}
	base := kind
	if types, ok := typeLists(kind); ok {
		base, a.AllowedValues = "type", typeList(types)
	} else if inner, ok := strings.CutPrefix(kind, "{"); ok {
		inner = strings.TrimSuffix(inner, "}")
		base = "type"
		if strings.Contains(inner, `"`) {
			base = "string"
		}
		a.AllowedValues = p.value("list("+base+")", "["+inner+"]")
	}
	switch base {
	case "type", "int", "float", "bool", "string", "shape", "tensor", "func":
	default:
		p.fail("not a kind of attribute:", kind)
	}
	if a.Type = base; list {
		a.Type = "list(" + base + ")"
	}
}

func typeList(types []tensor.DType) *tfpb.AttrValue {
	list := &tfpb.AttrValue_ListValue{}
	for _, t := range types {
		list.Type = append(list.Type, tfpb.DataType(t))
	}
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: list}}
}

// value parses a default.
func (p *parser) value(kind, text string) *tfpb.AttrValue {
	if inner, ok := strings.CutPrefix(kind, "list("); ok {
		return p.list(strings.TrimSuffix(inner, ")"), text)
	}
	v := &tfpb.AttrValue{}
	var err error
	switch kind {
	case "type":
		d, ok := tensor.ParseDType(text)
		if !ok {
			p.fail("not a type:", text)
		}
		v.Value = &tfpb.AttrValue_Type{Type: tfpb.DataType(d)}
	case "int":
		var n int64
		n, err = strconv.ParseInt(text, 0, 64)
		v.Value = &tfpb.AttrValue_I{I: n}
	case "float":
		var f float64
		f, err = strconv.ParseFloat(text, 32)
		v.Value = &tfpb.AttrValue_F{F: float32(f)}
	case "bool":
		var b bool
		b, err = strconv.ParseBool(text)
		v.Value = &tfpb.AttrValue_B{B: b}
	case "string":
		var s string
		s, err = strconv.Unquote(text)
		v.Value = &tfpb.AttrValue_S{S: []byte(s)}
	case "shape":
		v.Value = &tfpb.AttrValue_Shape{Shape: p.shape(text)}
	default:
		p.fail("a default for the kind", kind)
	}
	if err != nil {
		p.fail("a default that is wrong:", text)
	}
	return v
}

// shape parses "?" for a shape of unknown rank, or "[2, -1]".
func (p *parser) shape(text string) *tfpb.TensorShapeProto {
	if text == "?" {
		return &tfpb.TensorShapeProto{UnknownRank: true}
	}
	s := &tfpb.TensorShapeProto{}
	for _, n := range p.list("int", text).GetList().GetI() {
		s.Dim = append(s.Dim, &tfpb.TensorShapeProto_Dim{Size: n})
	}
	return s
}

func (p *parser) list(kind, text string) *tfpb.AttrValue {
	list := &tfpb.AttrValue_ListValue{}
	if !strings.HasPrefix(text, "[") || !strings.HasSuffix(text, "]") {
		p.fail("want a list in square brackets, have", text)
		return nil
	}
	for part := range strings.SplitSeq(text[1:len(text)-1], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		v := p.value(kind, part)
		switch kind {
		case "type":
			list.Type = append(list.Type, v.GetType())
		case "int":
			list.I = append(list.I, v.GetI())
		case "float":
			list.F = append(list.F, v.GetF())
		case "bool":
			list.B = append(list.B, v.GetB())
		case "string":
			list.S = append(list.S, v.GetS())
		case "shape":
			list.Shape = append(list.Shape, v.GetShape())
		}
	}
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: list}}
}

// splitOutside splits text at sep where it does not stand in quotes.
func splitOutside(text string, sep byte) []string {
	var parts []string
	start, quoted := 0, false
	for i := range len(text) {
		switch {
		case text[i] == '"':
			quoted = !quoted
		case text[i] == sep && !quoted:
			parts, start = append(parts, text[start:i]), i+1
		}
	}
	return append(parts, text[start:])
}
