package graph

import (
	"fmt"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

func withLibrary(t testing.TB, lines string, functions ...*tfpb.FunctionDef) *tfpb.GraphDef {
	t.Helper()
	def := parseGraph(t, lines)
	def.Library = &tfpb.FunctionDefLibrary{Function: functions}
	return def
}

func runWithLibrary(t testing.TB, lines string, functions ...*tfpb.FunctionDef) (map[string]Value, error) {
	t.Helper()
	s := newFakeSet()
	g, err := Import(withLibrary(t, lines, functions...), ImportOptions{Set: s})
	if err != nil {
		return nil, err
	}
	return runGraphs(t, s, g)
}

// twice doubles its argument.
func twice(t testing.TB) *tfpb.FunctionDef {
	return function(t, "twice(x: T) -> (y: T)", "s = AddV2(x, x) T=$T\ny <- s:z:0", "T")
}

const three = "three = Const() dtype=int32 value=#3\n"

func TestFunctionRuns(t *testing.T) {
	for name, call := range map[string]string{
		"by name":           `c = twice(three) T=int32 other=1`,
		"PartitionedCall":   `c = PartitionedCall(three) Tin=[int32] Tout=[int32] f=@twice32`,
		"StatefulCall":      `c = StatefulPartitionedCall(three) Tin=[int32] Tout=[int32] f=@twice32`,
		"within a function": `c = outer(three)`,
	} {
		out, err := runWithLibrary(t, three+call+fetch("r", "c"), twice(t),
			function(t, "twice32(x: int32) -> (y: int32)", "s = twice(x) T=int32\ny <- s:y:0"),
			function(t, "outer(x: int32) -> (y: int32)", "s = PartitionedCall(x) Tin=[int32] Tout=[int32] f=@twice32\ny <- s:output:0"))
		if err != nil || scalar(t, out["r"]) != 6 {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
}

// TestFunctionOfALambda: tf.function makes such names, when it does not inline.
func TestFunctionOfALambda(t *testing.T) {
	f := twice(t)
	f.Signature.Name = "__inference_<lambda>_12"
	out, err := runWithLibrary(t, three+"c = PartitionedCall(three) Tin=[int32] Tout=[int32] f=@g"+fetch("r", "c"), f,
		function(t, "g(x: int32) -> (y: int32)", "s = __inference_<lambda>_12(x) T=int32\ny <- s:y:0"))
	if err != nil || scalar(t, out["r"]) != 6 {
		t.Errorf("%v, %v", out, err)
	}
	_, err = Import(parseGraph(t, "a<b = Const() dtype=int32 value=#3"), ImportOptions{Set: newFakeSet()})
	checkError(t, "a node", err, status.InvalidArgument, `node "a<b": a name consists of`)
}

func TestFunctionReturnsAnArgument(t *testing.T) {
	out, err := runWithLibrary(t, three+"c = same(three)"+fetch("r", "c"), function(t, "same(x: int32) -> (y: int32)", "y <- x"))
	if err != nil || scalar(t, out["r"]) != 3 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestFunctionRunsWhatHasEffectsOnly(t *testing.T) {
	// Fail has no result and is not stateful here, so nothing needs it.
	f := function(t, "f(x: int32) -> (y: int32)", "bad = Fail()\nalso = NoOp(^bad)\ny <- x")
	if _, err := runWithLibrary(t, three+"c = f(three)", f); err != nil {
		t.Errorf("a node that nothing needs has run: %v", err)
	}
	f.ControlRet["c"] = "also"
	_, err := runWithLibrary(t, three+"c = f(three)", f)
	checkError(t, "control result", err, status.InvalidArgument, "failed\n\t [[{{node bad}}]]")
}

func TestIfTakesABranch(t *testing.T) {
	same := function(t, "same(x: int32) -> (y: int32)", "y <- x")
	double := function(t, "double(x: int32) -> (y: int32)", "s = twice(x) T=int32\ny <- s:y:0")
	for op, want := range map[string]int32{
		"c = If(three, three) Tcond=int32 Tin=[int32] Tout=[int32] then_branch=@same else_branch=@double":                           3,
		"c = StatelessIf(zero, three) Tcond=int32 Tin=[int32] Tout=[int32] then_branch=@same else_branch=@double":                   6,
		"c = Case(zero, three) Tin=[int32] Tout=[int32] branches=[@same,@double]":                                                   3,
		"c = StatelessCase(three, three) Tin=[int32] Tout=[int32] branches=[@same,@double]":                                         6,
		"p = Less(zero, three) T=int32\nc = If(p, three) Tcond=bool Tin=[int32] Tout=[int32] then_branch=@double else_branch=@same": 6,
	} {
		out, err := runWithLibrary(t, three+"zero = Const() dtype=int32 value=#0\n"+op+fetch("r", "c"), twice(t), same, double)
		if err != nil || scalar(t, out["r"]) != want {
			t.Errorf("%s: %v, %v", op, out, err)
		}
	}
}

// countTo returns the functions of a While that counts its first variable to its second.
func countTo(t testing.TB) []*tfpb.FunctionDef {
	return []*tfpb.FunctionDef{
		function(t, "below(i: int32, n: int32) -> (p: bool)", "l = Less(i, n) T=int32\np <- l:z:0"),
		function(t, "inc(i: int32, n: int32) -> (j: int32, m: int32)", "one = Const() dtype=int32 value=#1\ns = AddV2(i, one:output:0) T=int32\nj <- s:z:0\nm <- n"),
	}
}

func TestWhileRuns(t *testing.T) {
	const w = "w = While(zero, n) T=[int32,int32] cond=@below body=@inc"
	out, err := runWithLibrary(t, "zero = Const() dtype=int32 value=#0\nn = Const() dtype=int32 value=#500\n"+w+fetch("r", "w")+fetch("s", "w:1"), countTo(t)...)
	if err != nil || scalar(t, out["r"]) != 500 || scalar(t, out["s"]) != 500 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestWhileEndsWithTheStep(t *testing.T) {
	forever := function(t, "below(i: int32, n: int32) -> (p: bool)", "l = Less(n, i) T=int32\nt = Const() dtype=int32 value=#0\nu = Const() dtype=int32 value=#1\nl2 = Less(t:output:0, u:output:0) T=int32\np <- l2:z:0")
	_, err := runWithLibrary(t, "zero = Const() dtype=int32 value=#0\nn = Const() dtype=int32 value=#5\nf = Fail()\n"+
		"w = While(zero, n) T=[int32,int32] cond=@below body=@inc", forever, countTo(t)[1])
	checkError(t, "while", err, status.InvalidArgument, "failed")
}

func TestRecursionThatEndsIsRun(t *testing.T) {
	// sum(n) = n == 0 ? 0 : sum(n-1) + n, with n counted up to 0.
	zero := function(t, "zero(n: int32) -> (y: int32)", "y <- n")
	rest := function(t, "rest(n: int32) -> (y: int32)", "one = Const() dtype=int32 value=#1\nm = AddV2(n, one:output:0) T=int32\ns = sum(m:z:0)\nt = AddV2(s:y:0, n) T=int32\ny <- t:z:0")
	sum := function(t, "sum(n: int32) -> (y: int32)", "i = If(n, n) Tcond=int32 Tin=[int32] Tout=[int32] then_branch=@rest else_branch=@zero\ny <- i:output:0")
	out, err := runWithLibrary(t, "n = Const() dtype=int32 value=#-10\nc = sum(n)"+fetch("r", "c"), zero, rest, sum)
	if err != nil || scalar(t, out["r"]) != -55 {
		t.Errorf("%v, %v", out, err)
	}
}

func TestRecursionIsBounded(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", "s = f(x)\ny <- s:y:0")
	_, err := runWithLibrary(t, three+"c = f(three)", f)
	checkError(t, "recursion", err, status.ResourceExhausted, `function "f": the call is the 257th within calls, and at most 256 are allowed`)
}

func TestImportRefusesFunctions(t *testing.T) {
	same := function(t, "same(x: int32) -> (y: int32)", "y <- x")
	for _, tc := range []struct {
		name, lines string
		f           *tfpb.FunctionDef
		code        status.Code
		want        string
	}{
		{"missing function", "c = PartitionedCall(three) Tin=[int32] Tout=[int32] f=@nothing", same, status.InvalidArgument, `op PartitionedCall calls the function "nothing", which is not in the library of the graph` + "\n\t [[{{node c}}]]"},
		{"wrong types", "c = PartitionedCall(three) Tin=[int32] Tout=[float] f=@same", same, status.InvalidArgument, `function "same" takes [int32] and returns [int32], but op PartitionedCall passes [int32] and wants [float]`},
		{"name of an op", "", function(t, "NoOp() -> ()", ""), status.InvalidArgument, "Cannot add function 'NoOp' because an op with the same name already exists."},
		{"no result", "c = f(three)", function(t, "f(x: int32) -> (y: int32)", ""), status.InvalidArgument, `function "f": Return y missing.`},
		{"unknown input", "c = f(three)", function(t, "f(x: int32) -> (y: int32)", "i = Identity(z:out:0) T=int32\ny <- i:output:0"), status.InvalidArgument, `function "f": Node 'i': Unknown input node 'z:out:0'`},
		{"unknown placeholder", "c = f(three)", function(t, "f(x: int32) -> (y: int32)", "i = Identity(x) T=$T\ny <- i:output:0"), status.InvalidArgument, `Failed to bind the placeholder "T"`},
		{"attribute that is missing", "c = PartitionedCall(three) Tin=[int32] Tout=[int32] f=@twice", twice(t), status.InvalidArgument, `function "twice": Attr T is not found from the call`},
		{"another task", "c = f(three)", function(t, "f(x: int32) -> (y: int32)", `i = Identity(x) T=int32 device="/job:other/task:1"`+"\ny <- i:output:0"), status.Unimplemented, `function "f": node "i" is placed on /job:other/task:1, and its caller "c" on ` + dev},
		{"condition without a value", "c = While(three) T=[int32] cond=@same body=@same", function(t, "same(x: int32) -> ()", ""), status.InvalidArgument, `function "same"`},
	} {
		_, err := Import(withLibrary(t, three+tc.lines, tc.f), ImportOptions{Set: newFakeSet()})
		checkError(t, tc.name, err, tc.code, tc.want)
	}
}

// TestFunctionsWithGrowingAttributesAreBounded: f calls itself with its own attributes inside.
func TestFunctionsWithGrowingAttributesAreBounded(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", "y <- x")
	f.Signature.Attr = append(f.Signature.Attr, attrDef("g", "func"))
	f.NodeDef = parseNodes(t, "c = f(x)")
	f.NodeDef[0].Device = ""
	f.NodeDef[0].Attr["g"] = &tfpb.AttrValue{Value: &tfpb.AttrValue_Func{Func: &tfpb.NameAttrList{Name: "h", Attr: map[string]*tfpb.AttrValue{
		"g": {Value: &tfpb.AttrValue_Placeholder{Placeholder: "g"}}}}}}
	_, err := Import(withLibrary(t, three+"c = f(three) g=@h", f), ImportOptions{Set: newFakeSet()})
	checkError(t, "growing", err, status.ResourceExhausted, `function "f" is called with too many or too large sets of attributes`)
}

func TestExecutorsOfFunctionsAreClosed(t *testing.T) {
	s := newFakeSet()
	closed := 0
	s.ops["Closer"] = fakeOp{def: s.ops["Identity"].def, kernel: func(*Node) (Kernel, error) { return closer{&closed}, nil }}
	f := function(t, "f(x: int32) -> (y: int32)", "i = Closer(x) T=int32\ny <- i:output:0")
	g, err := Import(withLibrary(t, three+"c = f(three)\nd = f(c)\ni = Closer(d) T=int32", f), ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewExecutor(g, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Run(t.Context(), &Step{Allocator: tensor.Heap{}}); err != nil {
		t.Error(err)
	}
	if err := e.Close(); err != nil || closed != 2 {
		t.Errorf("%d kernels were closed, want 2: %v", closed, err)
	}
}

// sessionSet is a fakeSet that knows which session a kernel was made in; 0 is that of the graph.
type sessionSet struct {
	*fakeSet
	session int
	made    map[string]int // the session by the name of the node
	open    *int           // sessions that NewSession has made and nobody has closed
}

func (s sessionSet) NewSession() State {
	*s.open++
	s.session = *s.open
	return s
}

func (s sessionSet) NewKernel(n *Node) (Kernel, error) {
	s.made[n.Name] = s.session
	return s.fakeSet.NewKernel(n)
}

func (s sessionSet) Close() { *s.open-- }

// TestFunctionsAreSessionsOfTheirOwn: nodes of functions keep nothing for the session, whose nodes may
// have their names.
func TestFunctionsAreSessionsOfTheirOwn(t *testing.T) {
	f := function(t, "f(x: int32) -> (y: int32)", "inF = Identity(x) T=int32\ny <- inF:output:0")
	g := function(t, "g(x: int32) -> (y: int32)", "inG = Identity(x) T=int32\ny <- inG:output:0")
	s := sessionSet{fakeSet: newFakeSet(), made: map[string]int{}, open: new(int)}
	imported, err := Import(withLibrary(t, three+"c = f(three)\nd = f(c)\nother = g(d)\ni = Identity(other) T=int32", f, g), ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	e, err := NewExecutor(imported, s)
	if err != nil {
		t.Fatal(err)
	}
	if s.made["i"] != 0 || s.made["inF"]*s.made["inG"] != 2 {
		t.Errorf("the sessions of the nodes are %v, want one for each function, and 0 for the graph", s.made)
	}
	if err := e.Close(); err != nil || *s.open != 0 {
		t.Errorf("%d sessions are open after Close, %v", *s.open, err)
	}
}

type closer struct{ n *int }

func (c closer) Compute(k *Context) error { k.Forward(0, 0); return nil }
func (c closer) Close() error             { *c.n++; return nil }

func TestDeadValueOfAFunctionIsAnError(t *testing.T) {
	f := function(t, "f(x: int32, p: bool) -> (y: int32)", "s = Switch(x, p) T=int32\ny <- s:output_true:0")
	_, err := runWithLibrary(t, three+"p = Less(three, three) T=int32\nc = f(three, p)", f)
	checkError(t, "dead", err, status.InvalidArgument, `function "f": Retval[0] does not have value`)
	if err != nil && !strings.Contains(err.Error(), "{{node c}}") {
		t.Errorf("the error does not name the call: %v", err)
	}
}

func TestLibraryListsItsFunctions(t *testing.T) {
	g, err := Import(withLibrary(t, "", twice(t), function(t, "a() -> ()", "")), ImportOptions{Set: newFakeSet()})
	if err != nil {
		t.Fatal(err)
	}
	var none *Library
	if list := g.Library.Functions(); len(list) != 2 || list[0].GetSignature().GetName() != "a" || len(none.Functions()) != 0 {
		t.Errorf("%v", list)
	}
}

// TestOnlyFunctionsHaveArgumentsAndResults: a graph, or a body, that brings _Arg or _Retval is refused.
func TestOnlyFunctionsHaveArgumentsAndResults(t *testing.T) {
	for name, tc := range map[string]struct{ lines, body string }{
		"_Retval in a body":  {"c = f(three)", "a = _Retval(x) T=int32 index=0\ny <- x"},
		"_Arg in a body":     {"c = f(three)", "a = _Arg() T=int32 index=0\ny <- a:output:0"},
		"_Retval in a graph": {"a = _Retval(three) T=int32 index=0", "y <- x"},
		"_Arg in a graph":    {"a = _Arg() T=int32 index=0", "y <- x"},
	} {
		_, err := Import(withLibrary(t, three+tc.lines, function(t, "f(x: int32) -> (y: int32)", tc.body)), ImportOptions{Set: newFakeSet()})
		checkError(t, name, err, status.InvalidArgument, `node "a" has the op _`)
	}
}

// TestEachNodeOfAFunctionMustRunOnTheTaskOfTheCaller has one node elsewhere, behind many that are not.
func TestEachNodeOfAFunctionMustRunOnTheTaskOfTheCaller(t *testing.T) {
	for _, elsewhere := range []string{"/job:other", "/job:w/replica:1", "/task:1", "/job:w/replica:0/task:1/device:CPU:0"} {
		f := function(t, "f(x: int32) -> (y: int32)", strings.Repeat("n = NoOp()\n", 20)+"last = NoOp()\ny <- x\n^c <- last")
		for i, n := range f.NodeDef[:20] {
			n.Name, n.Device = fmt.Sprintf("n%d", i), []string{"", dev, "/task:0", "/device:CPU:1", "/job:w/replica:0"}[i%5]
			f.ControlRet[n.Name] = n.Name
		}
		f.NodeDef[20].Device = elsewhere
		_, err := Import(withLibrary(t, three+"c = f(three)", f), ImportOptions{Set: newFakeSet()})
		checkError(t, elsewhere, err, status.Unimplemented, `node "last" is placed on `+elsewhere+`, and its caller "c" on `+dev)
	}
}

// TestElementOfAListArgument: the body of a function names one tensor of a list, or all of them.
func TestElementOfAListArgument(t *testing.T) {
	f := function(t, "f() -> (y: int32)", "s = AddV2(x:0, x:1) T=int32\nall = AddN(s:z:0, x) T=int32 N=3\ny <- all:sum:0")
	f.Signature.InputArg = []*tfpb.OpDef_ArgDef{{Name: "x", Type: tfpb.DataType_DT_INT32, NumberAttr: "N"}}
	f.Signature.Attr = []*tfpb.OpDef_AttrDef{{Name: "N", Type: "int"}}
	out, err := runWithLibrary(t, three+"four = Const() dtype=int32 value=#4\nc = f(three, four) N=2"+fetch("r", "c"), f)
	if err != nil || scalar(t, out["r"]) != 7 {
		t.Errorf("%v, %v", out, err)
	}
}
