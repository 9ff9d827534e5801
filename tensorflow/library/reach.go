package library

import (
	_ "embed" // ops.txt
	"maps"
	"slices"
	"strconv"
	"strings"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// A graph comes from anybody who reaches the port. Ops that reach beyond the memory of their session are
// refused when the graph is registered, in its nodes and in every function that these may call. What
// is refused, or not known, never gets to TensorFlow: the context gets only the functions that were
// checked.

// reach is what an op reaches beyond the memory of its session.
type reach uint8

const (
	reachUnknown   reach = iota // no release that was looked through has the op
	reachNothing                // only memory and processors
	reachFiles                  // files that its inputs or attributes name
	reachHost                   // more of the host than files
	reachArguments              // nothing or files or the host, by an attribute or an input
)

//go:embed ops.txt
var opsText string

// parseReach reads ops.txt.
func parseReach(text string) (map[string]reach, error) {
	words := map[string]reach{"": reachNothing, "files": reachFiles, "host": reachHost, "arguments": reachArguments}
	ops := map[string]reach{}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		op, word, _ := strings.Cut(line, " ")
		r, ok := words[word]
		if !ok || op == "" || ops[op] != reachUnknown {
			return nil, status.Errorf(status.Internal, "ops.txt: the line %q", line)
		}
		ops[op] = r
	}
	return ops, nil
}

// FileAccess is what the graphs of a Set may do with files.
type FileAccess uint8

const (
	// NoFiles refuses graphs with ops that read or write files.
	NoFiles FileAccess = iota
	// FilesBelow allows files below Options.Directories, to which the kernel of the system confines the
	// kernel process.
	FilesBelow
	// AllFiles allows every file that the user of the process may read or write.
	AllFiles
)

// String implements fmt.Stringer.
func (a FileAccess) String() string {
	switch a {
	case NoFiles:
		return "none"
	case FilesBelow:
		return "below"
	}
	return "all"
}

// permit checks that no node of g, and none of a function that it calls, reaches more than is allowed.
// It returns these functions in alphabetical order.
func (s *Set) permit(g *graph.Graph) ([]*tfpb.FunctionDef, error) {
	p := permission{set: s, functions: map[string]*tfpb.FunctionDef{}, called: map[string]bool{}}
	for _, f := range g.Library.Functions() {
		p.functions[f.GetSignature().GetName()] = f
	}
	for _, n := range g.Nodes {
		err := p.node(n.Def, func(i int) *tfpb.NodeDef {
			if i < len(n.In) && n.In[i].Index == 0 {
				return n.In[i].Node.Def
			}
			return nil
		})
		if err != nil {
			return nil, graph.NodeError(n.Name, err)
		}
	}
	for len(p.todo) > 0 {
		f := p.todo[len(p.todo)-1]
		p.todo = p.todo[:len(p.todo)-1]
		if err := p.body(f); err != nil {
			return nil, err
		}
	}
	functions := make([]*tfpb.FunctionDef, 0, len(p.called))
	for _, name := range slices.Sorted(maps.Keys(p.called)) {
		functions = append(functions, p.functions[name])
	}
	return functions, nil
}

// permission is the check of one graph.
type permission struct {
	set       *Set
	functions map[string]*tfpb.FunctionDef // of the graph, by name
	called    map[string]bool              // those that the nodes seen so far may call
	todo      []*tfpb.FunctionDef          // those of them whose nodes have not been checked
}

// body checks the nodes of a function, and the functions that its attributes name: a caller that gives
// an attribute no value gets the default.
func (p *permission) body(f *tfpb.FunctionDef) error {
	name := f.GetSignature().GetName()
	for _, a := range f.GetSignature().GetAttr() {
		eachFunction(a.GetDefaultValue(), p.call)
	}
	for _, a := range f.GetAttr() {
		eachFunction(a, p.call)
	}
	nodes := make(map[string]*tfpb.NodeDef, len(f.GetNodeDef()))
	for _, n := range f.GetNodeDef() {
		nodes[n.GetName()] = n
	}
	for _, n := range f.GetNodeDef() {
		err := p.node(n, func(i int) *tfpb.NodeDef {
			if i >= len(n.GetInput()) {
				return nil
			}
			from, _, ok := strings.Cut(n.GetInput()[i], ":") // node:output:index, or an argument
			if !ok {
				return nil
			}
			return nodes[from]
		})
		if err != nil {
			return graph.NodeError(n.GetName(), status.From(err).WithPrefix("function "+strconv.Quote(name)))
		}
	}
	return nil
}

// node checks one node. input returns the node that gives one of its inputs, nil when that is no node
// with one output.
func (p *permission) node(n *tfpb.NodeDef, input func(int) *tfpb.NodeDef) error {
	for _, a := range n.GetAttr() {
		eachFunction(a, p.call)
	}
	if p.functions[n.GetOp()] != nil {
		p.call(n.GetOp())
		return nil
	}
	op := p.set.ops[n.GetOp()]
	if op == nil {
		return nil // TensorFlow has no such op: the graph is refused for that
	}
	r, why := p.set.reach[n.GetOp()], ""
	if r == reachArguments {
		r, why = p.byArguments(n, op, input)
	}
	return p.set.permits(n, r, why)
}

// call notes that a function may be called.
func (p *permission) call(name string) {
	if f := p.functions[name]; f != nil && !p.called[name] {
		p.called[name] = true
		p.todo = append(p.todo, f)
	}
}

// permits says why a node that reaches r is refused. why is what the reach follows from, beside the op.
func (s *Set) permits(n *tfpb.NodeDef, r reach, why string) error {
	op := n.GetOp() + why
	switch {
	case r == reachNothing, r == reachFiles && s.files != NoFiles:
		return nil
	case r == reachFiles:
		return status.Errorf(status.PermissionDenied,
			"node %q: op %s reads or writes files of this server, which allows none; start it with --tensorflow-files DIR, and name files below DIR, or place the node on another task", n.GetName(), op)
	case r == reachHost:
		return status.Errorf(status.PermissionDenied,
			"node %q: op %s reaches sockets, devices or the process of this server, or runs code that a value brings; no setting allows that: place the node on another task", n.GetName(), op)
	}
	return status.Errorf(status.PermissionDenied,
		"node %q: what op %s of TensorFlow %s reaches is not known here; use the release that docs/tensorflow.md names, or another op, or place the node on another task", n.GetName(), op, s.version)
}

// eachFunction calls f with the name of each function in an attribute, and in the attributes of these.
func eachFunction(a *tfpb.AttrValue, f func(name string)) {
	for _, one := range append([]*tfpb.NameAttrList{a.GetFunc()}, a.GetList().GetFunc()...) {
		if one == nil {
			continue
		}
		f(one.GetName())
		for _, inner := range one.GetAttr() {
			eachFunction(inner, f)
		}
	}
}

// byArguments returns what a node reaches whose op reaches nothing with some values of an attribute or
// input only. An attribute that the caller of a function gives may have any value. The text says which one it is.
func (p *permission) byArguments(n *tfpb.NodeDef, op *tfpb.OpDef, input func(int) *tfpb.NodeDef) (reach, string) {
	harmless, name, otherwise := false, "", reachFiles
	texts := func(attr string) []string {
		name = attr
		return attrTexts(n, op, attr)
	}
	switch n.GetOp() {
	case "PrintV2": // "file://PATH" appends to a file
		t := texts("output_stream")
		harmless = len(t) == 1 && slices.Contains([]string{"stdout", "stderr", "log(info)", "log(warning)", "log(error)"}, t[0])
	case "FixedUnigramCandidateSampler":
		t := texts("vocab_file")
		harmless = len(t) == 1 && t[0] == ""
	case "DecodeProtoV2", "EncodeProto": // any other text is the path of a file
		t := texts("descriptor_source")
		harmless = len(t) == 1 && (t[0] == "" || t[0] == "local://" || strings.HasPrefix(t[0], "bytes://"))
	case "CacheDataset", "CacheDatasetV2": // in memory
		name = "filename"
		harmless = p.isEmptyText(input(1))
	case "Copy", "CopyHost":
		t := texts("debug_ops_spec")
		harmless, otherwise = t != nil && len(t) == 0, reachHost
	default: // ops for debuggers, which send what they see to URLs
		t := texts("debug_urls")
		harmless, otherwise = t != nil && len(t) == 0, reachHost
	}
	if harmless {
		return reachNothing, ""
	}
	return otherwise, " with this " + name
}

// attrTexts returns the value of an attribute of texts, or its default; nil when the caller of the
// function that the node is in gives it.
func attrTexts(n *tfpb.NodeDef, op *tfpb.OpDef, attr string) []string {
	a := n.GetAttr()[attr]
	for _, d := range op.GetAttr() {
		if a == nil && d.GetName() == attr {
			a = d.GetDefaultValue()
		}
	}
	switch v := a.GetValue().(type) {
	case *tfpb.AttrValue_S:
		return []string{string(v.S)}
	case *tfpb.AttrValue_List:
		texts := []string{}
		for _, s := range v.List.GetS() {
			texts = append(texts, string(s))
		}
		return texts
	}
	return nil
}

// isEmptyText reports whether a node is a constant that is the text "".
func (p *permission) isEmptyText(n *tfpb.NodeDef) bool {
	if n.GetOp() != "Const" || p.functions["Const"] != nil {
		return false
	}
	t := n.GetAttr()["value"].GetTensor()
	return t.GetDtype() == tfpb.DataType_DT_STRING && len(t.GetTensorContent()) == 0 &&
		!slices.ContainsFunc(t.GetStringVal(), func(s []byte) bool { return len(s) > 0 })
}
