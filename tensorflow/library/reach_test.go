package library

import (
	"slices"
	"strings"
	"testing"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// reachSet returns a set with some ops that reach more than memory, and ops that call functions. None of
// them has inputs here.
func reachSet(t testing.TB, files FileAccess) *Set {
	t.Helper()
	s := recordedSet(t)
	s.files = files
	for _, op := range []string{"ReadFile", "WriteFile", "Save", "TFRecordDataset", "ImmutableConst", "Abort", "PyFunc", "DatasetFromGraph", "OpOfTomorrow", "MapDataset"} {
		s.ops[op] = &tfpb.OpDef{Name: op}
	}
	s.ops["PrintV2"] = &tfpb.OpDef{Name: "PrintV2", Attr: []*tfpb.OpDef_AttrDef{{Name: "output_stream", Type: "string", DefaultValue: text("stderr")}}}
	return s
}

func funcAttr(name string, attrs map[string]*tfpb.AttrValue) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_Func{Func: &tfpb.NameAttrList{Name: name, Attr: attrs}}}
}

// node1 makes a node n without inputs. Its attributes are pairs.
func node1(op string, attrs ...any) *tfpb.NodeDef {
	n := &tfpb.NodeDef{Name: "n", Op: op, Device: hereDevice, Attr: map[string]*tfpb.AttrValue{}}
	for i := 0; i+1 < len(attrs); i += 2 {
		name, _ := attrs[i].(string)
		n.Attr[name], _ = attrs[i+1].(*tfpb.AttrValue)
	}
	return n
}

// rewritten returns the error of a graph with one node and some functions, as RegisterGraph gets it.
func rewritten(t testing.TB, s *Set, n *tfpb.NodeDef, functions ...*tfpb.FunctionDef) error {
	t.Helper()
	st, err := s.NewState()
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	g, err := graph.Import(&tfpb.GraphDef{Node: []*tfpb.NodeDef{n}, Library: &tfpb.FunctionDefLibrary{Function: functions}}, graph.ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	_, err = st.Rewrite(g)
	return err
}

// TestOpsThatReachMoreAreRefused: the error of a graph with such an op names the node, the op, and what to do. A
// directory for files lets the ops for files pass, and nothing else.
func TestOpsThatReachMoreAreRefused(t *testing.T) {
	for _, tt := range []struct {
		op   string
		want string // by default
		then string // with files
	}{
		{"ReadFile", "--tensorflow-files DIR", ""},
		{"WriteFile", "--tensorflow-files DIR", ""},
		{"Save", "--tensorflow-files DIR", ""},
		{"TFRecordDataset", "--tensorflow-files DIR", ""},
		{"ImmutableConst", "--tensorflow-files DIR", ""},
		{"Abort", "no setting allows that", "no setting allows that"},
		{"PyFunc", "no setting allows that", "no setting allows that"},
		{"DatasetFromGraph", "no setting allows that", "no setting allows that"},
		{"OpOfTomorrow", "is not known here", "is not known here"},
		{"MapDataset", "", ""},
	} {
		for _, files := range []FileAccess{NoFiles, FilesBelow, AllFiles} {
			err := rewritten(t, reachSet(t, files), node1(tt.op))
			want := tt.want
			if files != NoFiles {
				want = tt.then
			}
			switch {
			case want == "" && status.CodeOf(err) == status.PermissionDenied:
				t.Errorf("%s is refused with %d: %v", tt.op, files, err)
			case want != "" && (status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "op "+tt.op) || !strings.Contains(err.Error(), "{{node n}}")):
				t.Errorf("%s with %d: %v, want %q", tt.op, files, err, want)
			}
		}
	}
}

// TestFunctionsReachNoMore: an op is refused in a function that a node may call, in whatever way, and the function that
// nothing calls is not given to TensorFlow.
func TestFunctionsReachNoMore(t *testing.T) {
	reads := body("reads", node1("ReadFile"))
	for _, tt := range []struct {
		name      string
		node      *tfpb.NodeDef
		functions []*tfpb.FunctionDef
		want      bool
	}{
		{"an attribute", node1("MapDataset", "f", funcAttr("reads", nil)), nil, true},
		{"a list", &tfpb.NodeDef{Name: "n", Op: "MapDataset", Device: hereDevice, Attr: calling("", "reads").GetAttr()}, nil, true},
		{"the op", node1("reads"), nil, true},
		{"an attribute of a function in an attribute", node1("MapDataset", "f", funcAttr("other", map[string]*tfpb.AttrValue{"g": funcAttr("reads", nil)})), nil, true},
		{"a function that calls it", node1("MapDataset", "f", funcAttr("calls", nil)), []*tfpb.FunctionDef{body("calls", calling("MapDataset", "reads"))}, true},
		{"recursion", node1("MapDataset", "f", funcAttr("calls", nil)), []*tfpb.FunctionDef{body("calls", calling("MapDataset", "calls"), calling("MapDataset", "reads"))}, true},
		{"a default", node1("MapDataset", "f", funcAttr("defaults", nil)), []*tfpb.FunctionDef{{
			Signature: &tfpb.OpDef{Name: "defaults", Attr: []*tfpb.OpDef_AttrDef{{Name: "g", Type: "func", DefaultValue: funcAttr("reads", nil)}}}}}, true},
		{"an attribute of a function", node1("MapDataset", "f", funcAttr("has", nil)), []*tfpb.FunctionDef{{
			Signature: &tfpb.OpDef{Name: "has"}, Attr: map[string]*tfpb.AttrValue{"g": funcAttr("reads", nil)}}}, true},
		{"a function that hides an op", node1("Abs1"), []*tfpb.FunctionDef{body("Abs1", node1("ReadFile"))}, true},
		{"nothing", node1("MapDataset"), nil, false},
	} {
		s := reachSet(t, NoFiles)
		for _, f := range tt.functions {
			f.Signature.IsStateful = true
		}
		g := &tfpb.GraphDef{Node: []*tfpb.NodeDef{tt.node}, Library: &tfpb.FunctionDefLibrary{Function: append(tt.functions, reads)}}
		imported, err := graph.Import(g, graph.ImportOptions{Set: s})
		if err != nil {
			t.Fatalf("%s: %v", tt.name, err)
		}
		called, err := s.permit(imported)
		switch {
		case tt.want && (status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), "op ReadFile")):
			t.Errorf("%s: %v", tt.name, err)
		case !tt.want && (err != nil || len(called) > 0):
			t.Errorf("%s: %v, %v", tt.name, called, err)
		}
	}
}

// TestOnlyCalledFunctionsReachTensorFlow: a function that no node of the part calls, such as one for
// another task, is not checked and is in no context.
func TestOnlyCalledFunctionsReachTensorFlow(t *testing.T) {
	s := reachSet(t, NoFiles)
	g, err := graph.Import(&tfpb.GraphDef{Node: []*tfpb.NodeDef{node1("MapDataset", "f", funcAttr("a", nil))}, Library: &tfpb.FunctionDefLibrary{Function: []*tfpb.FunctionDef{
		body("c"), body("reads", node1("ReadFile")), body("b"), body("a", calling("MapDataset", "b"), calling("MapDataset", "c"))}}}, graph.ImportOptions{Set: s})
	if err != nil {
		t.Fatal(err)
	}
	c, err := newCutter(s, g)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range c.library.all {
		name, _, _ := strings.Cut(f.name, "_")
		names = append(names, name)
	}
	if !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("the context gets %q", names)
	}
}

// TestReachByArguments: ops that reach files or the host with some values of an attribute or of an input.
func TestReachByArguments(t *testing.T) {
	list := func(of ...string) *tfpb.AttrValue {
		l := &tfpb.AttrValue_ListValue{}
		for _, s := range of {
			l.S = append(l.S, []byte(s))
		}
		return &tfpb.AttrValue{Value: &tfpb.AttrValue_List{List: l}}
	}
	constant := func(op string, values ...string) *tfpb.NodeDef {
		x := &tfpb.TensorProto{Dtype: tfpb.DataType_DT_STRING}
		for _, v := range values {
			x.StringVal = append(x.StringVal, []byte(v))
		}
		return node1(op, "value", &tfpb.AttrValue{Value: &tfpb.AttrValue_Tensor{Tensor: x}})
	}
	given := &tfpb.AttrValue{Value: &tfpb.AttrValue_Placeholder{Placeholder: "a"}}
	withDefault := func(name string, v *tfpb.AttrValue) *tfpb.OpDef {
		return &tfpb.OpDef{Attr: []*tfpb.OpDef_AttrDef{{Name: name, DefaultValue: v}}}
	}
	for _, tt := range []struct {
		node  *tfpb.NodeDef
		op    *tfpb.OpDef
		input *tfpb.NodeDef
		want  reach
	}{
		{node1("PrintV2"), withDefault("output_stream", text("stderr")), nil, reachNothing},
		{node1("PrintV2", "output_stream", text("log(info)")), nil, nil, reachNothing},
		{node1("PrintV2", "output_stream", text("file:///tmp/x")), nil, nil, reachFiles},
		{node1("PrintV2", "output_stream", given), withDefault("output_stream", text("stderr")), nil, reachFiles},
		{node1("FixedUnigramCandidateSampler", "vocab_file", text("")), nil, nil, reachNothing},
		{node1("FixedUnigramCandidateSampler", "vocab_file", text("x")), nil, nil, reachFiles},
		{node1("DecodeProtoV2", "descriptor_source", text("local://")), nil, nil, reachNothing},
		{node1("DecodeProtoV2", "descriptor_source", text("bytes://\x01")), nil, nil, reachNothing},
		{node1("DecodeProtoV2", "descriptor_source", text("/etc/passwd")), nil, nil, reachFiles},
		{node1("EncodeProto", "descriptor_source", given), nil, nil, reachFiles},
		{node1("CacheDataset"), nil, constant("Const", ""), reachNothing},
		{node1("CacheDatasetV2"), nil, constant("Const"), reachNothing},
		{node1("CacheDataset"), nil, constant("Const", "/tmp/cache"), reachFiles},
		{node1("CacheDataset"), nil, constant("Identity", ""), reachFiles},
		{node1("CacheDataset"), nil, constant("Const", "", "/tmp/cache"), reachFiles},
		{node1("CacheDataset"), nil, nil, reachFiles},
		{node1("Copy"), withDefault("debug_ops_spec", list()), nil, reachNothing},
		{node1("Copy", "debug_ops_spec", list("DebugIdentity;grpc://x:1;0")), nil, nil, reachHost},
		{node1("DebugIdentityV2", "debug_urls", list()), nil, nil, reachNothing},
		{node1("DebugIdentityV2", "debug_urls", list("file:///tmp")), nil, nil, reachHost},
		{node1("DebugNanCount", "debug_urls", given), nil, nil, reachHost},
		{node1("DebugNanCount"), nil, nil, reachHost},
	} {
		p := permission{set: reachSet(t, NoFiles)}
		if p.set.reach[tt.node.GetOp()] != reachArguments {
			t.Errorf("ops.txt has %s as %d", tt.node.GetOp(), p.set.reach[tt.node.GetOp()])
		}
		if got, _ := p.byArguments(tt.node, tt.op, func(i int) *tfpb.NodeDef {
			if i != 1 {
				t.Errorf("input %d is looked at", i)
			}
			return tt.input
		}); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.node, got, tt.want)
		}
	}
	// A function with the name Const may return anything.
	p := permission{set: reachSet(t, NoFiles), functions: map[string]*tfpb.FunctionDef{"Const": body("Const")}}
	if p.isEmptyText(constant("Const", "")) {
		t.Error("a call of the function Const counts as a constant")
	}
	// An argument of a function is not the node with its name.
	caches := body("caches", constant("Const", ""), &tfpb.NodeDef{Name: "cache", Op: "CacheDataset", Input: []string{"d", "n"}})
	s := reachSet(t, NoFiles)
	s.ops["CacheDataset"], s.ops["Const"] = &tfpb.OpDef{Name: "CacheDataset"}, &tfpb.OpDef{Name: "Const"}
	p = permission{set: s, called: map[string]bool{}}
	if err := p.body(caches); status.CodeOf(err) != status.PermissionDenied || !strings.Contains(err.Error(), "op CacheDataset with this filename") {
		t.Errorf("an argument as the name of a file: %v", err)
	}
	caches.NodeDef[1].Input[1] = "n:output:0"
	if err := p.body(caches); err != nil {
		t.Errorf("a cache in memory: %v", err)
	}
}

// TestOpsList: ops.txt has each op once, in the order of a sort by bytes, and no other word than those that it
// explains.
func TestOpsList(t *testing.T) {
	ops, err := parseReach(opsText)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"Abs\nAbs\n", "Abs anything\n", "\n", " files\n"} {
		if _, err := parseReach(text); err == nil {
			t.Errorf("%q passes", text)
		}
	}
	last, listed := "", 0
	for line := range strings.Lines(opsText) {
		if op, _, _ := strings.Cut(strings.TrimSpace(line), " "); !strings.HasPrefix(line, "#") {
			if op <= last {
				t.Errorf("%s stands after %s", op, last)
			}
			last, listed = op, listed+1
		}
	}
	if listed != len(ops) {
		t.Errorf("%d ops of %d lines", len(ops), listed)
	}
}

// TestDirectoriesOfFiles: what is wrong with the directories for files is an error before anything starts.
func TestDirectoriesOfFiles(t *testing.T) {
	file := t.TempDir() + "/file"
	for _, tt := range []struct {
		o    Options
		want string
	}{
		{Options{Directories: []string{"."}}, "is not FilesBelow"},
		{Options{Files: FilesBelow, Process: []string{"x"}}, "needs Options.Directories"},
		{Options{Files: FilesBelow, Directories: []string{"."}}, "needs Options.Directories and Options.Process"},
		{Options{Files: FilesBelow, Process: []string{"x"}, Directories: []string{file}}, "make the directory first"},
	} {
		_, err := tt.o.directories()
		if ready := landlockReady(); tt.want == "make the directory first" && ready != nil {
			if err == nil || !strings.Contains(err.Error(), "--tensorflow-all-files") {
				t.Errorf("without Landlock: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}
