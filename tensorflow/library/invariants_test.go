package library

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// What must hold of every graph that is cut, whoever wrote it.

// cutAndCheck cuts the graph of a device as state.Rewrite does. It returns what is wrong with the result;
// nothing when the graph is refused, with why.
func cutAndCheck(s *Set, g *graph.Graph) (wrong []string, refused error) {
	c, err := newCutter(s, g)
	if err != nil {
		return nil, err
	}
	original := slices.Clone(c.nodes)
	if err := c.divide(); err != nil {
		return nil, err
	}
	out, units, err := c.assemble(g)
	if err != nil {
		return nil, err
	}
	wrong = append(wrong, eachNodeOnce(c, original, out)...)
	wrong = append(wrong, sameWaits(g, original, out)...)
	wrong = append(wrong, noSubgraphWaitsForItself(out)...)
	for _, u := range units {
		wrong = append(wrong, wellFormed(s, g, c, u)...)
		wrong = append(wrong, readsForItself(c, u)...)
	}
	if e, err := graph.NewExecutor(out, anyKernels{}); err != nil {
		wrong = append(wrong, fmt.Sprintf("no executor runs it: %v", err))
	} else if err := e.Close(); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong, nil
}

// eachNodeOnce: a node is in one subgraph, or in Go, or copied to where it is used; never in two of them.
func eachNodeOnce(c *cutter, original []*node, out *graph.Graph) (wrong []string) {
	times, inGraph := map[*node]int{}, map[string]bool{}
	for _, p := range c.subgraphs {
		for _, n := range p.nodes {
			times[n]++
			if n.subgraph != p {
				wrong = append(wrong, fmt.Sprintf("node %q is in a subgraph and does not know it", n.name))
			}
		}
	}
	for i, n := range out.Nodes {
		if n.ID != i {
			wrong = append(wrong, fmt.Sprintf("node %q has the ID %d at %d", n.Name, n.ID, i))
		}
		if n.Op != functionOp {
			inGraph[n.Name] = true
		}
	}
	for _, n := range original {
		want := 0
		if n.place == inSubgraph || n.place == apart {
			want = 1
		}
		if times[n] != want {
			wrong = append(wrong, fmt.Sprintf("node %q (%s) is in %d subgraphs, want %d", n.name, n.op, times[n], want))
		}
		if n.place == inGo && !inGraph[n.name] {
			wrong = append(wrong, fmt.Sprintf("node %q (%s) is in Go and not in the graph", n.name, n.op))
		}
	}
	return wrong
}

// bitset is a set of small numbers.
type bitset []uint64

func (b bitset) add(i int) { b[i/64] |= 1 << (i % 64) }

// merge adds the members of other, and reports whether there were new ones.
func (b bitset) merge(other bitset) (changed bool) {
	for i, w := range other {
		if b[i]|w != b[i] {
			b[i] |= w
			changed = true
		}
	}
	return changed
}

// waits returns, for each node of a graph, the anchors that it waits for, itself included.
func waits(g *graph.Graph, anchors int, anchor func(*graph.Node) int) []bitset {
	sets := make([]bitset, len(g.Nodes))
	for i, n := range g.Nodes {
		sets[i] = make(bitset, (anchors+63)/64)
		if a := anchor(n); a >= 0 {
			sets[i].add(a)
		}
	}
	for changed := true; changed; {
		changed = false
		for i, n := range g.Nodes {
			for _, in := range n.In {
				changed = sets[i].merge(sets[in.Node.ID]) || changed
			}
			for _, in := range n.ControlIn {
				changed = sets[i].merge(sets[in.ID]) || changed
			}
		}
	}
	return sets
}

// sameWaits: a node of Go, or one that may wait for others, waits for the same such nodes as before: for
// none that it need not wait for, and for all that it must.
func sameWaits(g *graph.Graph, original []*node, out *graph.Graph) (wrong []string) {
	number := map[string]int{} // of the anchors, by name
	var names []string
	before := make([]int, len(original))
	for i, n := range original {
		before[i] = -1
		if n.place == inGo || n.place == apart {
			before[i] = len(names)
			number[n.name] = len(names)
			names = append(names, n.name)
		}
	}
	was := waits(g, len(names), func(n *graph.Node) int { return before[n.ID] })
	is := waits(out, len(names), func(n *graph.Node) int {
		if a, ok := number[n.Name]; ok && (n.Op != functionOp || original[slices.IndexFunc(original, func(o *node) bool { return o.name == n.Name })].place == apart) {
			return a
		}
		return -1
	})
	of := map[string]bitset{}
	for _, n := range out.Nodes {
		if a, ok := number[n.Name]; ok && is[n.ID][a/64]&(1<<(a%64)) != 0 {
			of[n.Name] = is[n.ID]
		}
	}
	for i, n := range original {
		if before[i] < 0 {
			continue
		}
		got, ok := of[n.name]
		if !ok {
			wrong = append(wrong, fmt.Sprintf("node %q (%s) is not in the graph", n.name, n.op))
			continue
		}
		for w := range got {
			for x := got[w] ^ was[i][w]; x != 0; x &= x - 1 {
				other := names[w*64+bits.TrailingZeros64(x)]
				text := "waits no more for"
				if got[w]&(x&-x) != 0 {
					text = "waits now for"
				}
				wrong = append(wrong, fmt.Sprintf("node %q (%s) %s %q", n.name, n.op, text, other))
			}
		}
	}
	return wrong
}

// noSubgraphWaitsForItself: no path leads from a subgraph to itself, but through the next iteration of a loop.
func noSubgraphWaitsForItself(out *graph.Graph) (wrong []string) {
	missing, users := make([]int, len(out.Nodes)), make([][]*graph.Node, len(out.Nodes))
	var ready []*graph.Node
	for _, n := range out.Nodes {
		edge := func(from *graph.Node) {
			if from.Op != "NextIteration" {
				missing[n.ID]++
				users[from.ID] = append(users[from.ID], n)
			}
		}
		for _, in := range n.In {
			edge(in.Node)
		}
		for _, from := range n.ControlIn {
			edge(from)
		}
		if missing[n.ID] == 0 {
			ready = append(ready, n)
		}
	}
	for i := 0; i < len(ready); i++ {
		for _, u := range users[ready[i].ID] {
			if missing[u.ID]--; missing[u.ID] == 0 {
				ready = append(ready, u)
			}
		}
	}
	if len(ready) < len(out.Nodes) {
		for _, n := range out.Nodes {
			if missing[n.ID] > 0 && n.Op == functionOp {
				wrong = append(wrong, fmt.Sprintf("the subgraph %q waits for itself", n.Name))
			}
		}
		if wrong == nil {
			wrong = append(wrong, "nodes wait for one another")
		}
	}
	return wrong
}

// wellFormed: the function of a subgraph has no reference among its arguments, and a graph that calls it is
// right by the rules of Import: each input names an output of the right type, and names are unique.
func wellFormed(s *Set, g *graph.Graph, c *cutter, u *unit) (wrong []string) {
	of := u.definition(c)
	c.library.renameIn(of)
	f, err := newFunction(of, "")
	if err != nil {
		return []string{err.Error()}
	}
	def := new(tfpb.FunctionDef)
	if err := proto.Unmarshal(f.def, def); err != nil {
		return []string{err.Error()}
	}
	call := &tfpb.NodeDef{Name: "call", Op: f.name}
	library := &tfpb.FunctionDefLibrary{Function: []*tfpb.FunctionDef{def}}
	for _, callee := range c.library.all {
		def := new(tfpb.FunctionDef)
		if err := proto.Unmarshal(callee.def, def); err != nil {
			return []string{err.Error()}
		}
		library.Function = append(library.Function, def)
	}
	graphDef := &tfpb.GraphDef{Library: library, Versions: &tfpb.VersionDef{Producer: g.Producer}}
	for i, a := range def.GetSignature().GetInputArg() {
		if tensor.DType(a.GetType()).IsRef() {
			wrong = append(wrong, fmt.Sprintf("subgraph %q takes a reference", u.node.Name))
		}
		recv := &tfpb.NodeDef{Name: fmt.Sprintf("in_%d", i), Op: "_Recv", Attr: map[string]*tfpb.AttrValue{
			"tensor_type": {Value: &tfpb.AttrValue_Type{Type: a.GetType()}}, "tensor_name": text("x"), "send_device": text("a"), "recv_device": text("b"),
			"send_device_incarnation": {Value: &tfpb.AttrValue_I{I: 1}}}}
		graphDef.Node = append(graphDef.Node, recv)
		call.Input = append(call.Input, recv.GetName())
	}
	graphDef.Node = append(graphDef.Node, call)
	if _, err := graph.Import(graphDef, graph.ImportOptions{Set: s}); err != nil && !strings.Contains(err.Error(), "recurs") {
		wrong = append(wrong, fmt.Sprintf("the function of subgraph %q: %v", u.node.Name, err))
	}
	return wrong
}

// readsForItself: a subgraph takes no value that another one has read from a variable before it runs.
func readsForItself(c *cutter, u *unit) (wrong []string) {
	for _, v := range u.args {
		if c.readOf(v) != nil && u.p.lasts == ofGraph {
			wrong = append(wrong, fmt.Sprintf("subgraph %q takes what %q has read", u.node.Name, v.n.name))
		}
	}
	return wrong
}

func text(s string) *tfpb.AttrValue {
	return &tfpb.AttrValue{Value: &tfpb.AttrValue_S{S: []byte(s)}}
}

// anyKernels is a state that has a kernel for everything and runs nothing.
type anyKernels struct{}

func (a anyKernels) NewSession() graph.State { return a }

func (anyKernels) Rewrite(g *graph.Graph) (*graph.Graph, error) { return g, nil }
func (anyKernels) NewKernel(*graph.Node) (graph.Kernel, error) {
	return graph.KernelFunc(func(*graph.Context) error { return nil }), nil
}
func (anyKernels) Reset([]string) {}
func (anyKernels) Close()         {}
