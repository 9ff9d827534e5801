package graph

import (
	"strconv"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

func TestNodesAreBounded(t *testing.T) {
	def := &tfpb.GraphDef{Node: make([]*tfpb.NodeDef, 1_000_000)}
	for i := range def.Node {
		def.Node[i] = &tfpb.NodeDef{Name: "n" + strconv.Itoa(i), Op: "NoOp"}
	}
	_, err := Import(def, ImportOptions{Set: newFakeSet()})
	checkError(t, "nodes", err, status.ResourceExhausted, "the graph has 1000000 nodes, and the graph with its functions may have 250000")
}

func TestNodesOfFunctionsAreBounded(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", strings.Repeat("a = NoOp()\n", 50)+"y <- x")
	_, err := Import(withLibrary(t, three+"c = f(three)", f), ImportOptions{Set: newFakeSet(), MaxNodes: 30})
	checkError(t, "nodes", err, status.ResourceExhausted, `function "f": it has 52 nodes, and the graph with its functions may have 30`)
}

func TestInputsAndOutputsAreBounded(t *testing.T) {
	for _, lines := range []string{
		"c = Const() dtype=int32 value=#1\na = AddN(" + strings.TrimSuffix(strings.Repeat("c, ", 100), ", ") + ") T=int32 N=100",
		"c = Const() dtype=int32 value=#1\na = NoOp(" + strings.TrimSuffix(strings.Repeat("^c, ", 100), ", ") + ")",
		"c = Const() dtype=int32 value=#1\ns = _SwitchN(c, c) T=int32 num_outs=100",
	} {
		_, err := Import(parseGraph(t, lines), ImportOptions{Set: newFakeSet(), MaxEdges: 90})
		checkError(t, lines[:40], err, status.ResourceExhausted, "inputs or outputs the graph has more than 90")
		if _, err := Import(parseGraph(t, lines), ImportOptions{Set: newFakeSet(), MaxEdges: 300}); err != nil {
			t.Error(err)
		}
	}
}

// constGraph has a Const of a shape with one value, which repeats.
func constGraph(t testing.TB, dtype tfpb.DataType, dims ...int64) *tfpb.GraphDef {
	def := parseGraph(t, "c = Const() dtype=int32")
	def.Node[0].Attr["dtype"] = typeValue(dtype)
	def.Node[0].Attr["value"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_Tensor{Tensor: &tfpb.TensorProto{Dtype: dtype, TensorShape: shapeAttr(dims...).GetShape()}}}
	return def
}

func TestConstantsAreBounded(t *testing.T) {
	for _, tc := range []struct {
		name  string
		dtype tfpb.DataType
		dims  []int64
		code  status.Code
		want  string
	}{
		{"small", tfpb.DataType_DT_FLOAT, []int64{250}, status.OK, ""},
		{"large", tfpb.DataType_DT_FLOAT, []int64{251}, status.ResourceExhausted, `node "c" (Const): attribute "value": its tensor has the type float and the shape [251]: with it the constants of the graph take more than 1000 bytes`},
		{"huge", tfpb.DataType_DT_FLOAT, []int64{1 << 40, 1 << 20}, status.ResourceExhausted, "take more than 1000 bytes"},
		{"strings", tfpb.DataType_DT_STRING, []int64{63}, status.ResourceExhausted, "take more than 1000 bytes"},
		{"negative", tfpb.DataType_DT_FLOAT, []int64{-2}, status.InvalidArgument, `node "c" (Const): attribute "value": its tensor: `},
		{"overflow", tfpb.DataType_DT_FLOAT, []int64{1 << 40, 1 << 40}, status.InvalidArgument, `attribute "value": its tensor: `},
		{"no type", tfpb.DataType_DT_INVALID, nil, status.InvalidArgument, `node "c" (Const): attribute "`},
		{"reference", 101, nil, status.InvalidArgument, `node "c" (Const): attribute "`},
	} {
		_, err := Import(constGraph(t, tc.dtype, tc.dims...), ImportOptions{Set: newFakeSet(), MaxConstantBytes: 1000})
		checkError(t, tc.name, err, tc.code, tc.want)
	}
}

func TestConstantsOfAGraphAreCountedTogether(t *testing.T) {
	def := constGraph(t, tfpb.DataType_DT_FLOAT, 200)
	hidden := constGraph(t, tfpb.DataType_DT_FLOAT, 200).Node[0]
	hidden.Attr["_hint"] = hidden.Attr["value"]
	hidden.Attr["value"] = constant(t, ints(1))
	hidden.Attr["value"].GetTensor().Dtype = tfpb.DataType_DT_FLOAT
	hidden.Name = "d"
	def.Node = append(def.Node, hidden)
	_, err := Import(def, ImportOptions{Set: newFakeSet(), MaxConstantBytes: 1000})
	checkError(t, "together", err, status.ResourceExhausted, `node "d" (Const): attribute "_hint"`)
}

// TestBytesOfAGraph: a few bytes of a GraphDef may stand for large constants, and for many nodes by the
// functions that it calls with different attributes.
func TestBytesOfAGraph(t *testing.T) {
	bytesOf := func(def *tfpb.GraphDef) int64 {
		t.Helper()
		g, err := Import(def, ImportOptions{Set: newFakeSet()})
		if err != nil {
			t.Fatal(err)
		}
		return g.Bytes
	}
	small, large := bytesOf(constGraph(t, tfpb.DataType_DT_FLOAT, 10)), bytesOf(constGraph(t, tfpb.DataType_DT_FLOAT, 1010))
	if large-small != 4000 {
		t.Errorf("1000 more floats are %d bytes", large-small)
	}
	nodes := strings.Builder{}
	for i := range 100 {
		nodes.WriteString("a" + strconv.Itoa(i) + " = NoOp()\n")
	}
	g := function(t, "g(x: int32) -> (y: int32)", nodes.String()+"y <- x")
	if plain, called := bytesOf(parseGraph(t, three)), bytesOf(withLibrary(t, three+"c = g(three)", g)); called-plain < 100*nodeBytes {
		t.Errorf("a function of 100 nodes is %d bytes", called-plain)
	}
}

func TestShapesInAttributes(t *testing.T) {
	shape := func(v *tfpb.AttrValue) error {
		def := parseGraph(t, "v = VariableV2() dtype=int32")
		def.Node[0].Attr["shape"] = v
		_, err := Import(def, ImportOptions{Set: newFakeSet()})
		return err
	}
	many := make([]int64, 255)
	unknown := &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: &tfpb.TensorShapeProto{UnknownRank: true, Dim: []*tfpb.TensorShapeProto_Dim{{}}}}}
	for _, tc := range []struct {
		name string
		v    *tfpb.AttrValue
		want string
	}{
		{"unknown extent", shapeAttr(-1, 3), ""},
		{"negative extent", shapeAttr(3, -2), `node "v" (VariableV2): attribute "shape": dimension 1 of a shape is -2`},
		{"overflow", shapeAttr(1<<40, 1<<40), `attribute "shape": `},
		{"255 dimensions", shapeAttr(many...), "a shape has 255 dimensions, at most 254 are possible"},
		{"unknown rank with dimensions", unknown, "a shape of unknown rank has 1 dimensions"},
		{"no value", &tfpb.AttrValue{}, "a value of the kind nothing where shape is wanted"},
		{"nil", nil, "NodeDef missing attr 'shape'"},
	} {
		checkError(t, tc.name, shape(tc.v), status.InvalidArgument, tc.want)
	}
}

func TestListsInAttributes(t *testing.T) {
	list := func(l *tfpb.AttrValue_ListValue) error {
		def := parseGraph(t, "l = Lists()")
		def.Node[0].Attr["types"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: l}}
		_, err := Import(def, ImportOptions{Set: newFakeSet()})
		return err
	}
	for _, tc := range []struct {
		name string
		l    *tfpb.AttrValue_ListValue
		want string
	}{
		{"empty", &tfpb.AttrValue_ListValue{}, ""},
		{"of another kind", &tfpb.AttrValue_ListValue{I: []int64{1}}, `node "l" (Lists): attribute "types": a value of the kind list(int) where list(type) is wanted`},
		{"of two kinds", &tfpb.AttrValue_ListValue{I: []int64{1}, Type: []tfpb.DataType{1}}, "a value of the kind list(mixed) where list(type) is wanted"},
		{"of no types", &tfpb.AttrValue_ListValue{Type: []tfpb.DataType{0}}, "0 is no type"},
		{"of unknown types", &tfpb.AttrValue_ListValue{Type: []tfpb.DataType{1, 99}}, "99 is no type"},
	} {
		checkError(t, tc.name, list(tc.l), status.InvalidArgument, tc.want)
	}
}

func TestNamesAreBounded(t *testing.T) {
	def := &tfpb.GraphDef{Node: []*tfpb.NodeDef{{Name: strings.Repeat("a", maxName+1), Op: "NoOp"}}}
	_, err := Import(def, ImportOptions{Set: newFakeSet()})
	checkError(t, "long", err, status.InvalidArgument, "the name of a node has 4097 bytes, at most 4096 are allowed: aaaa")
}

func TestLongCyclesAreShortInErrors(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString("n" + strconv.Itoa(i) + " = NoOp(^n" + strconv.Itoa((i+1)%1000) + ")\n")
	}
	_, err := Import(parseGraph(t, b.String()), ImportOptions{Set: newFakeSet()})
	checkError(t, "cycle", err, status.InvalidArgument, "the graph has a cycle of 1000 nodes: ")
	if len(err.Error()) > 400 {
		t.Errorf("the text has %d bytes", len(err.Error()))
	}
}

// TestFramesMustMatch has nodes whose inputs come from different loops, and loops that nothing enters.
func TestFramesMustMatch(t *testing.T) {
	loop := loopGraph(1, 1) + "\n"
	for _, tc := range []struct{ name, lines, want string }{
		{"two frames", loop + "y = AddV2(b, one) T=int32", "{{node y}} has inputs from different frames. The input {{node b}} is in frame 'w'. The input {{node one}} is in frame ''."},
		{"no frame name", three + `e = Enter(three) T=int32 frame_name=""`, "The Enter {{node e}} must have a frame name."},
		{"no iterations", three + `e = Enter(three) T=int32 frame_name="f" parallel_iterations=0`, `node "e" (Enter): parallel_iterations is 0, and must be 1 or more`},
		{"Exit outside", three + `x = Exit(three) T=int32`, `node "x" (Exit) leaves a loop, and none of its inputs comes from one`},
		{"NextIteration outside", three + `x = NextIteration(three) T=int32`, `node "x" (NextIteration) belongs into a loop`},
		{"a loop that nothing enters", "m = Merge(n) T=int32 N=1\nn = NextIteration(m) T=int32", `node "m" (Merge) can never run`},
	} {
		_, err := Import(parseGraph(t, tc.lines), ImportOptions{Set: newFakeSet()})
		checkError(t, tc.name, err, status.InvalidArgument, tc.want)
	}
}

func TestIterationsAreBounded(t *testing.T) {
	s := newFakeSet()
	p, err := newPlan(importGraph(t, s, loopGraph(1, 1<<40)))
	if err != nil {
		t.Fatal(err)
	}
	if got := p.frames[1].parallel; got != maxParallelIterations {
		t.Errorf("%d iterations may run at once", got)
	}
}

func TestDefaultsOfFunctionsAreBounded(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", "y <- x")
	f.Signature.Attr = append(f.Signature.Attr, withDefault(attrDef("a", "string"), text(strings.Repeat("a", maxDefaults))))
	_, err := Import(withLibrary(t, three+"c = f(three)", f), ImportOptions{Set: newFakeSet()})
	checkError(t, "defaults", err, status.ResourceExhausted, `function "f": the default values of its attributes have 4099 bytes, at most 4096 are allowed`)
}

// TestReadsOfVariablesElsewhereAreBounded: each of the 2001 reads waits for each of the 2001 nodes.
func TestReadsOfVariablesElsewhereAreBounded(t *testing.T) {
	var nodes, waits strings.Builder
	for i := range 2001 {
		nodes.WriteString("a" + strconv.Itoa(i) + " = NoOp()\n")
		waits.WriteString(", ^a" + strconv.Itoa(i))
	}
	def := parseGraph(t, onDev1("v = VariableV2() dtype=int32")+nodes.String()+
		"dst = AddN(v"+strings.Repeat(", v", 2000)+waits.String()+") T=int32 N=2001")
	def.Node[0].Attr["shape"] = shapeAttr()
	g, err := Import(def, ImportOptions{Set: newFakeSet()})
	if err != nil {
		t.Fatal(err)
	}
	_, err = Split(g, incarnations)
	checkError(t, "reads", err, status.ResourceExhausted, `node "dst" on `+dev+` reads 2001 references of other devices and waits for 2001 nodes`)
}
