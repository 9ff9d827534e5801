package graph

import "slices"

// plan is a graph as the propagation reads it: nodes with their places in the state of an iteration.
// It does not change after it was made.
type plan struct {
	items  []*item      // by Node.ID
	frames []*framePlan // frames[0] is the root
	roots  []*item      // items without inputs
}

// item is a node of a plan.
type item struct {
	node *Node
	kind kind

	frame int // index in plan.frames
	// place is the item's index in iteration.nodes, first that of its first input in
	// iteration.inputs.
	place, first int
	// edges are those of the outputs, in the order of the outputs; controls are the nodes that wait
	// for this one. Both stay in the frame of the outputs.
	edges    []outEdge
	controls []*item
	unused   []int // outputs without an edge

	child    *framePlan // of an Enter node: where it leads
	constant bool       // of an Enter node: the value is that of all iterations

	kernel Kernel
	async  AsyncKernel // kernel, if it is one
	blocks bool        // kernel is a BlockingKernel
	cheap  bool        // it always is
	cost   cost
	refs   bool // an input is a reference, or may be the memory of a variable (alias.go)
	handed int  // this many inputs, the first ones, are handed on as they are: see alias.go
	unset  bool // the op takes references to variables without a value
}

type outEdge struct {
	from int
	to   *item
	slot int  // index in iteration.inputs
	last bool // the last edge of its output, which gets the value itself
}

// framePlan is a frame of a plan.
type framePlan struct {
	index, parallel int
	name            string
	enters          int
	// pending are the counts with which an iteration starts, inputs its number of input values.
	pending []nodeState
	inputs  int
	// state is what an iteration takes in bytes, with one of each frame in it.
	state int64
}

// nodeState counts what a node of an iteration waits for.
type nodeState struct {
	// pending is the number of inputs that have not come. Of a Merge it is twice the number of
	// control inputs that have not come, plus 1 until a live value has.
	pending int32
	// dead is the number of dead inputs that have come.
	dead    int32
	started bool
}

// newPlan makes the plan of a graph. It reads the inputs of the nodes, not Node.Out.
func newPlan(g *Graph) (*plan, error) {
	fs, err := analyseFrames(g)
	if err != nil {
		return nil, err
	}
	p := &plan{items: make([]*item, len(g.Nodes))}
	for _, f := range fs.all {
		p.frames = append(p.frames, &framePlan{index: f.index, name: f.name, parallel: f.parallel, enters: len(f.enters)})
	}
	for _, n := range g.Nodes {
		p.items[n.ID] = p.newItem(g, n, fs)
	}
	for _, it := range p.items {
		p.addEdges(it)
	}
	for _, it := range p.items {
		it.finishEdges()
	}
	p.findAliases()
	p.setState(fs)
	return p, nil
}

func (p *plan) newItem(g *Graph, n *Node, fs *frames) *item {
	f := p.frames[fs.of[n.ID].index]
	it := &item{node: n, kind: kindOf(n.Op), frame: f.index, place: len(f.pending), first: f.inputs, unset: n.OpDef.GetAllowsUninitializedInput()}
	if g.Library.find(n.Op) != nil {
		it.kind = kindCall
	}
	f.inputs += len(n.In)
	state := nodeState{pending: int32(len(n.In) + len(n.ControlIn))}
	if it.kind == kindMerge {
		state.pending = int32(1 + 2*len(n.ControlIn))
	}
	f.pending = append(f.pending, state)
	if it.kind == kindEnter {
		it.child = p.frames[fs.child(fs.of[n.ID], n).index]
		it.constant = n.Bool("is_constant")
	}
	for i, in := range n.In {
		it.refs = it.refs || n.InTypes[i].IsRef() || in.Node.OutTypes[in.Index].IsRef()
	}
	if len(n.In) == 0 && len(n.ControlIn) == 0 {
		p.roots = append(p.roots, it)
	}
	return it
}

func (p *plan) addEdges(it *item) {
	for i, in := range it.node.In {
		from := p.items[in.Node.ID]
		from.edges = append(from.edges, outEdge{from: in.Index, to: it, slot: it.first + i})
	}
	for _, c := range it.node.ControlIn {
		from := p.items[c.ID]
		from.controls = append(from.controls, it)
	}
}

// finishEdges brings the edges into order.
func (it *item) finishEdges() {
	slices.SortStableFunc(it.edges, func(a, b outEdge) int { return a.from - b.from })
	next := 0
	for i := range it.edges {
		e := &it.edges[i]
		e.last = i+1 == len(it.edges) || it.edges[i+1].from != e.from
		for ; next < e.from; next++ {
			it.unused = append(it.unused, next)
		}
		if e.last {
			next = e.from + 1
		}
	}
	for ; next < len(it.node.OutTypes); next++ {
		it.unused = append(it.unused, next)
	}
}
