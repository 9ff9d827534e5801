package library

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// A graph is cut in five steps:
//
//  1. copyNodes      the graph, as nodes that may change
//  2. readReferences reference edges into Go nodes become reads and tokens (references.go)
//  3. classify       what runs in Go, what has a function of its own, what may be copied
//  4. group          nodes with the same frontier make a subgraph (frontier.go)
//  5. assemble       the subgraphs as nodes of a new graph (assemble.go)
//
// The frontier of a node is the outputs of Go nodes, and of nodes that may wait, from which a path
// leads to it through other nodes. Nodes with equal frontiers wait for the same and are dead
// together, so one function may run them: none of its outputs comes later than it must, and no path
// leaves a subgraph and comes back to it.

// place says where a node runs.
type place uint8

const (
	inSubgraph place = iota // in the function of the nodes with its frontier
	apart                   // in a function of its own, since it may wait or lasts longer than the graph
	inGo                    // in Go
	copied                  // in the function of each node that uses it
)

// node is a node of a graph that is being cut.
type node struct {
	name, op, device string
	def              *tfpb.NodeDef
	opDef            *tfpb.OpDef
	inTypes          []tensor.DType
	outTypes         []tensor.DType
	inputs           []value
	control          []*node
	order            int // in a topological order

	// refs are the references that an op of control flow had before its data became tokens; nil for
	// other nodes.
	refs []value

	place    place
	front    set
	subgraph *subgraph // nil in Go, and for a copied node
}

// value is an output of a node.
type value struct {
	n *node
	i int
}

// dtype is the type of a value.
func (v value) dtype() tensor.DType { return v.n.outTypes[v.i] }

// cutter cuts one graph.
type cutter struct {
	set       *Set
	nodes     []*node
	sets      *sets
	subgraphs []*subgraph
	// library has the functions of the graph, which nodes may have as op.
	library *library
	// names are those of the nodes.
	names map[string]bool
	// roots are the nodes that name what the references of each node refer to.
	roots map[*node]*node
	// reads are the nodes that give the memory of a variable as a value, with the reference to it.
	reads map[*node]value
	// bodies are the functions of the graph whose nodes have not been checked.
	bodies map[string]*tfpb.FunctionDef
}

// cut returns the nodes of g in topological order, each with its subgraph.
func cut(s *Set, g *graph.Graph) (*cutter, error) {
	c, err := newCutter(s, g)
	if err != nil {
		return nil, err
	}
	return c, c.divide()
}

// newCutter returns a cutter with the nodes of g in its order.
func newCutter(s *Set, g *graph.Graph) (*cutter, error) {
	c := &cutter{set: s, sets: newSets(), bodies: map[string]*tfpb.FunctionDef{}}
	functions, err := s.permit(g)
	if err != nil {
		return nil, err
	}
	if c.library, err = newLibrary(functions, s.saltFor(functions)); err != nil {
		return nil, err
	}
	c.library.containers = s.containers(functions...)
	for _, f := range functions {
		c.bodies[f.GetSignature().GetName()] = f
	}
	c.copyNodes(g)
	return c, nil
}

// divide brings the nodes into a topological order and makes the subgraphs.
func (c *cutter) divide() error {
	c.passHandles()
	if err := c.readReferences(); err != nil {
		return err
	}
	c.findRoots()
	if err := c.sort(); err != nil {
		return err
	}
	c.classify()
	return c.group()
}

// copyNodes copies the nodes of the graph.
func (c *cutter) copyNodes(g *graph.Graph) {
	c.nodes, c.names = make([]*node, len(g.Nodes)), make(map[string]bool, len(g.Nodes))
	for i, n := range g.Nodes {
		c.names[n.Name] = true
		c.nodes[i] = &node{name: n.Name, op: n.Op, device: n.Device, def: n.Def, opDef: n.OpDef,
			inTypes: n.InTypes, outTypes: n.OutTypes}
		if staysInGo(n.Op) && !c.library.has(n.Op) {
			c.nodes[i].place = inGo
		}
	}
	for i, n := range g.Nodes {
		for _, in := range n.In {
			c.nodes[i].inputs = append(c.nodes[i].inputs, value{c.nodes[in.Node.ID], in.Index})
		}
		for _, in := range n.ControlIn {
			c.nodes[i].control = append(c.nodes[i].control, c.nodes[in.ID])
		}
	}
}

// unique returns a name that no node has, which begins with name.
func (c *cutter) unique(name string) string {
	for c.names[name] {
		name += "_"
	}
	c.names[name] = true
	return name
}

// add adds a node that the graph did not have.
func (c *cutter) add(like *node, name, op string, attrs map[string]*tfpb.AttrValue, out tensor.DType) *node {
	n := &node{name: name, op: op, device: like.device, opDef: c.set.ops[op], outTypes: []tensor.DType{out},
		def: &tfpb.NodeDef{Name: name, Op: op, Device: like.device, Attr: attrs}}
	c.nodes = append(c.nodes, n)
	return n
}

// sort brings the nodes into a topological order. Only the edges that leave a NextIteration go back.
func (c *cutter) sort() error {
	waits := make(map[*node]int, len(c.nodes))
	users := make(map[*node][]*node, len(c.nodes))
	var ready []*node
	for _, n := range c.nodes {
		for _, from := range n.predecessors() {
			if from.op != "NextIteration" {
				waits[n]++
				users[from] = append(users[from], n)
			}
		}
		if waits[n] == 0 {
			ready = append(ready, n)
		}
	}
	for i := 0; i < len(ready); i++ {
		ready[i].order = i
		for _, u := range users[ready[i]] {
			if waits[u]--; waits[u] == 0 {
				ready = append(ready, u)
			}
		}
	}
	if len(ready) < len(c.nodes) {
		for _, n := range c.nodes {
			if waits[n] > 0 {
				return status.Errorf(status.InvalidArgument, "node %q (%s) is part of a cycle, or waits for one", n.name, n.op)
			}
		}
	}
	c.nodes = ready
	return nil
}

// predecessors are the nodes that n waits for, once for each edge.
func (n *node) predecessors() []*node {
	from := make([]*node, 0, len(n.inputs)+len(n.control))
	for _, in := range n.inputs {
		from = append(from, in.n)
	}
	return append(from, n.control...)
}

// classify sets the places.
func (c *cutter) classify() {
	var constants []*node
	inGoToo := map[*node]*node{}
	forGo := map[*node]bool{} // nodes whose values a Go node takes
	for _, n := range c.nodes {
		// The function of a lasting node has no constants in it, which other graphs may compute: it is
		// the same for all graphs of the session.
		if n.place != inGo && c.lifetime(n) == ofGraph {
			continue
		}
		for i, in := range n.inputs {
			if in.n.place == inGo {
				continue
			}
			if !c.isConst(in.n) {
				forGo[in.n] = forGo[in.n] || n.place == inGo
				continue
			}
			if proto.Size(in.n.def) > maxCopied {
				in.n.place = inGo
				continue
			}
			if inGoToo[in.n] == nil {
				k := *in.n
				k.place = inGo
				inGoToo[in.n] = &k
				constants = append(constants, &k)
			}
			n.inputs[i].n = inGoToo[in.n]
		}
	}
	for _, n := range c.nodes {
		switch {
		case n.place == inGo:
		case c.waits(n), c.lifetime(n) != ofGraph:
			n.place = apart
		case c.mayCopy(n) && !forGo[n]:
			n.place = copied
		}
	}
	c.waitForCopied()
	c.nodes = append(constants, c.nodes...)
}

// waitForCopied replaces each control edge from a copied node by the control edges into that node: one
// at most (cutter.gate). A copy in another subgraph has nothing to wait for.
func (c *cutter) waitForCopied() {
	for _, n := range c.nodes {
		if !slices.ContainsFunc(n.control, func(from *node) bool { return from.place == copied }) {
			continue
		}
		control := make([]*node, 0, len(n.control))
		for _, from := range n.control {
			if from.place == copied {
				control = append(control, from.control...)
			} else {
				control = append(control, from)
			}
		}
		n.control = control
	}
}

// isConst reports whether n is a constant that the Go kernels have, and that waits for nothing.
func (c *cutter) isConst(n *node) bool {
	return n.op == "Const" && n.place != inGo && len(n.control) == 0 && n.outTypes[0] != tensor.Variant && c.set.own.OpDef("Const") != nil
}

// anonymous is the shared_name of a VarHandleOp that makes a new variable each time
// (ResourceHandle::ANONYMOUS_NAME).
const anonymous = "cd2c89b7-88b7-44c8-ad83-06c2a9158347"

// mayCopy reports whether n gives the same value wherever it runs: a small constant, or a name of
// something that lives in the state. What has a copy waits for what n waited for.
func (c *cutter) mayCopy(n *node) bool {
	switch {
	case len(n.inputs) > 0 || c.library.has(n.op):
		return false
	case n.op == "Const":
		return len(n.control) == 0 && proto.Size(n.def) <= maxCopied
	case n.op == "VarHandleOp":
		return len(n.control) == 0 && string(n.def.GetAttr()["shared_name"].GetS()) != anonymous
	}
	return isRoot(n)
}

// perStep reports whether a node of the subgraph makes or uses what lives only for a step.
func (p *subgraph) perStep() bool {
	for _, n := range p.nodes {
		if strings.HasPrefix(n.op, "TensorArray") || strings.HasPrefix(n.op, "Stack") || strings.Contains(n.op, "TemporaryVariable") {
			return true
		}
	}
	return false
}
