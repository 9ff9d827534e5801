package graph

import (
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func TestImportConnectsNodes(t *testing.T) {
	g := importGraph(t, newFakeSet(), `
		c = Const() dtype=int32 value=#1
		s = AddV2(c, c:0) T=int32
		n = NoOp(^s, ^c, ^s)`)
	c, s, n := g.Nodes[0], g.Nodes[1], g.Nodes[2]
	if len(s.In) != 2 || s.In[0] != (Output{c, 0}) || s.In[1] != (Output{c, 0}) || s.OutTypes[0] != tensor.Int32 {
		t.Errorf("s: %+v", s)
	}
	if len(n.ControlIn) != 2 || n.ControlIn[0] != s || n.ControlIn[1] != c {
		t.Errorf("n: %+v", n)
	}
	if len(c.Out) != 3 || c.Out[2] != (Edge{ControlSlot, n, ControlSlot}) {
		t.Errorf("edges of c: %+v", c.Out)
	}
	if g.Producer != 1500 {
		t.Errorf("producer %d", g.Producer)
	}
}

func TestImportIgnoresHints(t *testing.T) {
	importGraph(t, newFakeSet(), "f = Fail() _class=7 tfg.legacy_call=true")
}

func TestImportFillsInDefaults(t *testing.T) {
	g := importGraph(t, newFakeSet(), `f = Fail()`)
	if got := g.Nodes[0].Text("text"); got != "failed" {
		t.Errorf("text = %q", got)
	}
}

func TestImportTypesOfLists(t *testing.T) {
	g := importGraph(t, newFakeSet(), `
		c = Const() dtype=int32 value=#1
		a = AddN(c, c, c) T=int32 N=3
		p = Lists() types=[float,int32]`)
	if n := g.Nodes[1]; len(n.InTypes) != 3 || n.InTypes[2] != tensor.Int32 {
		t.Errorf("AddN: %v", n.InTypes)
	}
	if n := g.Nodes[2]; len(n.OutTypes) != 2 || n.OutTypes[0] != tensor.Float32 {
		t.Errorf("list: %v", n.OutTypes)
	}
}

func TestImportOfReferences(t *testing.T) {
	const v = "v = VariableV2() dtype=int32 shape=s\nc = Const() dtype=int32 value=#1\n"
	def := func(lines string) *tfpb.GraphDef {
		d := parseGraph(t, strings.Replace(v, " shape=s", "", 1)+lines)
		d.Node[0].Attr["shape"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_Shape{Shape: &tfpb.TensorShapeProto{}}}
		return d
	}
	for lines, want := range map[string]string{
		`a = Assign(v, c) T=int32`:    "",
		`i = Identity(v) T=int32`:     "", // the value of the moment
		`a = Assign(c, c) T=int32`:    "Input 0 of node a was passed int32 from c:0 incompatible with expected int32_ref.",
		`i = Identity(v) T=float`:     "Input 0 of node i was passed int32_ref from v:0 incompatible with expected float.",
		`a = Assign(v, v) T=int32`:    "",
		`a = Assign(v, c) T=float`:    "Input 0 of node a was passed int32_ref from v:0 incompatible with expected float_ref.",
		`a = AddV2(v, c) T=int32_ref`: "is not in the list of allowed types",
	} {
		_, err := Import(def(lines), ImportOptions{Set: newFakeSet()})
		checkError(t, lines, err, status.InvalidArgument, want)
	}
}

// TestImportIgnoresAttributesThatTheOpDoesNotDeclare, as TensorFlow does: a newer master may know more of
// them. Their constants count all the same.
func TestImportIgnoresAttributesThatTheOpDoesNotDeclare(t *testing.T) {
	const c = "c = Const() dtype=int32 value=#1\n"
	for _, attr := range []string{"foo=1", "_hint=1", "tfg.legacy_call=1", "foo=float"} {
		g, err := Import(parseGraph(t, c+"i = Identity(c) T=int32 "+attr), ImportOptions{Set: newFakeSet()})
		if err != nil {
			t.Errorf("%s: %v", attr, err)
		} else if len(g.Nodes) != 2 {
			t.Errorf("%s: %d nodes", attr, len(g.Nodes))
		}
	}
	_, err := Import(parseGraph(t, c+"i = Identity(c) T=int32 foo=#2"), ImportOptions{Set: newFakeSet(), MaxConstantBytes: 7})
	checkError(t, "constant", err, status.ResourceExhausted, `node "i" (Identity): attribute "foo": its tensor`)
}

// checkError checks that err has a text, and nothing when it is "".
func checkError(t testing.TB, name string, err error, code status.Code, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", name, err)
	case want != "" && (err == nil || status.CodeOf(err) != code || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: error %v, want %v with %q", name, err, code, want)
	}
}

func TestImportRefuses(t *testing.T) {
	const c = "c = Const() dtype=int32 value=#1\n"
	for _, tc := range []struct {
		name, lines string
		code        status.Code
		want        string
	}{
		{"unknown op", "x = Foo()", status.Unimplemented, `Op type not registered 'Foo' in the kernel set "go" of this process, for node "x"`},
		{"no name", "? = NoOp()", status.InvalidArgument, `node "?"`},
		{"bad name", "a;b = NoOp()", status.InvalidArgument, `node "a;b"`},
		{"duplicate name", c + "c = NoOp()", status.InvalidArgument, "Node 'c' is not unique"},
		{"missing input", "s = AddV2(c, c) T=int32", status.InvalidArgument, "Node 's': Unknown input node 'c'"},
		{"missing control input", "s = NoOp(^c)", status.InvalidArgument, "Node 's': Unknown input node '^c'"},
		{"output that does not exist", c + "i = Identity(c:1) T=int32", status.InvalidArgument, "Node 'i': Connecting to invalid output 1 of source node c which has 1 outputs."},
		{"output with a huge number", c + "i = Identity(c:99999999999999999999) T=int32", status.InvalidArgument, "Unknown input node"},
		{"too few inputs", c + "s = AddV2(c) T=int32", status.InvalidArgument, "op AddV2 has 2 inputs with these attributes, but the node names 1"},
		{"too many inputs", c + "s = AddV2(c, c, c) T=int32", status.InvalidArgument, "but the node names 3"},
		{"control before data", c + "s = AddV2(c, ^c, c) T=int32", status.InvalidArgument, "Control dependencies must come after regular dependencies"},
		{"wrong type", c + "i = Identity(c) T=float", status.InvalidArgument, "Input 0 of node i was passed int32 from c:0 incompatible with expected float."},
		{"missing attribute", c + "i = Identity(c)", status.InvalidArgument, "NodeDef missing attr 'T' from Op Identity: node \"i\""},
		{"attribute of another kind", c + "i = Identity(c) T=7", status.InvalidArgument, `node "i" (Identity): attribute "T": a value of the kind int where type is wanted`},
		{"type that is not allowed", c + "s = AddV2(c, c) T=string", status.InvalidArgument, `node "s" (AddV2): attribute "T": the type string is not in the list of allowed types`},
		{"length below the minimum", "s = AddN() T=int32 N=0", status.InvalidArgument, "0 is below the minimum 1"},
		{"negative length", "s = AddN() T=int32 N=-5", status.InvalidArgument, "-5 is below the minimum 1"},
		{"huge length", "s = AddN() T=int32 N=9223372036854775807", status.ResourceExhausted, `node "s": with its 2147483647 inputs or outputs the graph has more than`},
		{"placeholder of a function", "f = Fail() text=$t", status.InvalidArgument, `its value is that of "t" of a function`},
		{"cycle", "a = NoOp(^c)\nb = NoOp(^a)\nc = NoOp(^b)\nd = NoOp(^c)", status.InvalidArgument, `the graph has a cycle of 3 nodes: `},
		{"cycle of one", "a = Identity(a) T=int32", status.InvalidArgument, `the graph has a cycle of 1 nodes: "a" -> "a"`},
		{"cycle through control into Merge", c + "m = Merge(c, ^n) T=int32 N=1\nn = NoOp(^m)", status.InvalidArgument, "the graph has a cycle of 2 nodes"},
		{"no type", c + "i = Identity(c) T=0", status.InvalidArgument, ""},
		{"reference type", "i = Identity(c) T=int32_ref", status.InvalidArgument, "AttrValue must not have reference type value of int32_ref"},
		{"gradient of a function", "g = SymbolicGradient()", status.Unimplemented, `node "g": SymbolicGradient`},
	} {
		_, err := Import(parseGraph(t, tc.lines), ImportOptions{Set: newFakeSet()})
		if tc.want == "" {
			tc.want = "int where type is wanted"
		}
		checkError(t, tc.name, err, tc.code, tc.want)
	}
}
