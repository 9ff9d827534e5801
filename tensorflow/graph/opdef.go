package graph

import (
	"sync"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// The executor itself runs the ops of control flow and the calls of functions: they are rules of
// propagation, which every KernelSet shares. No State makes a kernel of them. A KernelSet may
// have definitions of them, which are used in place of those below.

// kind says how the executor treats a node.
type kind uint8

const (
	kindKernel kind = iota
	kindTransfer
	kindSwitch
	kindMerge
	kindEnter
	kindExit
	kindNextIteration
	kindForward // LoopCond
	kindControlTrigger
	kindCall
	kindIf
	kindCase
	kindWhile
	kindArg
	kindRetval
)

// kindOf returns the kind of a node whose op is not a function of the library.
func kindOf(op string) kind {
	switch op {
	case "_Send", "_Recv", "_HostSend", "_HostRecv":
		return kindTransfer
	case "Switch", "RefSwitch", "_SwitchN":
		return kindSwitch
	case "Merge", "RefMerge":
		return kindMerge
	case "Enter", "RefEnter":
		return kindEnter
	case "Exit", "RefExit":
		return kindExit
	case "NextIteration", "RefNextIteration":
		return kindNextIteration
	case "LoopCond":
		return kindForward
	case "ControlTrigger":
		return kindControlTrigger
	case "PartitionedCall", "StatefulPartitionedCall":
		return kindCall
	case "If", "StatelessIf":
		return kindIf
	case "Case", "StatelessCase":
		return kindCase
	case "While", "StatelessWhile":
		return kindWhile
	case "_Arg":
		return kindArg
	case "_Retval":
		return kindRetval
	}
	return kindKernel
}

// builtin returns the definition of an op that the executor runs; nil for others.
func builtin(op string) *tfpb.OpDef { return builtins()[op] }

// SubgraphOp is the op of nodes that a KernelSet puts in place of several others (State.Rewrite). No op
// of TensorFlow has the name.
const SubgraphOp = "_TrystFunction"

// Named reports whether an op has a definition: of the set, or of the executor. The op of a node that
// calls a function by its name has none; a master chooses that name.
func Named(set KernelSet, op string) bool {
	return op == SubgraphOp || builtin(op) != nil || set.OpDef(op) != nil
}

var builtins = sync.OnceValue(func() map[string]*tfpb.OpDef {
	defs := make(map[string]*tfpb.OpDef)
	for _, d := range slicesOf(loopDefs(), functionDefs()) {
		defs[d.GetName()] = d
	}
	return defs
})

func slicesOf(lists ...[]*tfpb.OpDef) []*tfpb.OpDef {
	var all []*tfpb.OpDef
	for _, l := range lists {
		all = append(all, l...)
	}
	return all
}

// loopDefs are TensorFlow's definitions of the ops of conditionals and loops.
func loopDefs() []*tfpb.OpDef {
	t, n := attrDef("T", "type"), atLeast(attrDef("N", "int"), 1)
	var defs []*tfpb.OpDef
	for _, ref := range []bool{false, true} {
		prefix := ""
		if ref {
			prefix = "Ref"
		}
		data := func(name string) *tfpb.OpDef_ArgDef { return refArg(typeArg(name, "T"), ref) }
		defs = append(defs,
			&tfpb.OpDef{Name: prefix + "Switch", Attr: attrs(t), AllowsUninitializedInput: ref,
				InputArg:  args(data("data"), fixedArg("pred", tfpb.DataType_DT_BOOL)),
				OutputArg: args(data("output_false"), data("output_true"))},
			&tfpb.OpDef{Name: prefix + "Merge", Attr: attrs(t, n),
				InputArg:  args(&tfpb.OpDef_ArgDef{Name: "inputs", TypeAttr: "T", NumberAttr: "N", IsRef: ref}),
				OutputArg: args(data("output"), fixedArg("value_index", tfpb.DataType_DT_INT32))},
			&tfpb.OpDef{Name: prefix + "Enter", InputArg: args(data("data")), OutputArg: args(data("output")),
				Attr: attrs(t, attrDef("frame_name", "string"), withDefault(attrDef("is_constant", "bool"), boolean(false)),
					withDefault(attrDef("parallel_iterations", "int"), integer(defaultParallelIterations)))},
			&tfpb.OpDef{Name: prefix + "Exit", Attr: attrs(t), InputArg: args(data("data")), OutputArg: args(data("output"))},
			&tfpb.OpDef{Name: prefix + "NextIteration", Attr: attrs(t), InputArg: args(data("data")), OutputArg: args(data("output"))})
	}
	return append(defs,
		&tfpb.OpDef{Name: "_SwitchN", Attr: attrs(t, atLeast(attrDef("num_outs", "int"), 1)),
			InputArg:  args(typeArg("data", "T"), fixedArg("output_index", tfpb.DataType_DT_INT32)),
			OutputArg: args(&tfpb.OpDef_ArgDef{Name: "outputs", TypeAttr: "T", NumberAttr: "num_outs"})},
		&tfpb.OpDef{Name: "LoopCond", InputArg: args(fixedArg("input", tfpb.DataType_DT_BOOL)),
			OutputArg: args(fixedArg("output", tfpb.DataType_DT_BOOL))},
		&tfpb.OpDef{Name: "ControlTrigger"})
}

// functionDefs are TensorFlow's definitions of the ops that call functions.
func functionDefs() []*tfpb.OpDef {
	in, out := atLeast(attrDef("Tin", "list(type)"), 0), atLeast(attrDef("Tout", "list(type)"), 0)
	text := func(name string) *tfpb.OpDef_AttrDef {
		return withDefault(attrDef(name, "string"), &tfpb.AttrValue{Value: &tfpb.AttrValue_S{}})
	}
	shapes := withDefault(attrDef("output_shapes", "list(shape)"), emptyList())
	inputs, outputs := listArg("input", "Tin"), listArg("output", "Tout")
	defs := []*tfpb.OpDef{
		{Name: "_Arg", IsStateful: true, OutputArg: args(typeArg("output", "T")), Attr: attrs(attrDef("T", "type"), atLeast(attrDef("index", "int"), 0))},
		{Name: "_Retval", IsStateful: true, InputArg: args(typeArg("input", "T")), Attr: attrs(attrDef("T", "type"), atLeast(attrDef("index", "int"), 0))},
	}
	for _, stateful := range []bool{false, true} {
		call, prefix := "PartitionedCall", "Stateless"
		if stateful {
			call, prefix = "StatefulPartitionedCall", ""
		}
		parallel := withDefault(attrDef("parallel_iterations", "int"), integer(defaultParallelIterations))
		defs = append(defs,
			&tfpb.OpDef{Name: call, IsStateful: stateful, InputArg: args(listArg("args", "Tin")), OutputArg: args(outputs),
				Attr: attrs(in, out, attrDef("f", "func"), text("config"), text("config_proto"), text("executor_type"))},
			&tfpb.OpDef{Name: prefix + "If", IsStateful: stateful, InputArg: args(typeArg("cond", "Tcond"), inputs), OutputArg: args(outputs),
				Attr: attrs(attrDef("Tcond", "type"), in, out, attrDef("then_branch", "func"), attrDef("else_branch", "func"), shapes)},
			&tfpb.OpDef{Name: prefix + "Case", IsStateful: stateful, OutputArg: args(outputs),
				InputArg: args(fixedArg("branch_index", tfpb.DataType_DT_INT32), inputs),
				Attr:     attrs(in, out, atLeast(attrDef("branches", "list(func)"), 1), shapes)},
			&tfpb.OpDef{Name: prefix + "While", IsStateful: stateful, InputArg: args(listArg("input", "T")), OutputArg: args(listArg("output", "T")),
				Attr: attrs(atLeast(attrDef("T", "list(type)"), 0), attrDef("cond", "func"), attrDef("body", "func"), shapes, parallel)})
	}
	return defs
}

func args(a ...*tfpb.OpDef_ArgDef) []*tfpb.OpDef_ArgDef    { return a }
func attrs(a ...*tfpb.OpDef_AttrDef) []*tfpb.OpDef_AttrDef { return a }

func typeArg(name, attr string) *tfpb.OpDef_ArgDef {
	return &tfpb.OpDef_ArgDef{Name: name, TypeAttr: attr}
}

func listArg(name, attr string) *tfpb.OpDef_ArgDef {
	return &tfpb.OpDef_ArgDef{Name: name, TypeListAttr: attr}
}

func fixedArg(name string, t tfpb.DataType) *tfpb.OpDef_ArgDef {
	return &tfpb.OpDef_ArgDef{Name: name, Type: t}
}

func refArg(a *tfpb.OpDef_ArgDef, ref bool) *tfpb.OpDef_ArgDef {
	a.IsRef = ref
	return a
}

func attrDef(name, kind string) *tfpb.OpDef_AttrDef {
	return &tfpb.OpDef_AttrDef{Name: name, Type: kind}
}

func atLeast(a *tfpb.OpDef_AttrDef, n int64) *tfpb.OpDef_AttrDef {
	a.HasMinimum, a.Minimum = true, n
	return a
}

func withDefault(a *tfpb.OpDef_AttrDef, v *tfpb.AttrValue) *tfpb.OpDef_AttrDef {
	a.DefaultValue = v
	return a
}

func boolean(b bool) *tfpb.AttrValue  { return &tfpb.AttrValue{Value: &tfpb.AttrValue_B{B: b}} }
func integer(i int64) *tfpb.AttrValue { return &tfpb.AttrValue{Value: &tfpb.AttrValue_I{I: i}} }
func text(s string) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}}
}

func typeValue(t tfpb.DataType) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Type{Type: t}}
}

func emptyList() *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: &tfpb.AttrValue_ListValue{}}}
}
