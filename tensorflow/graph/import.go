package graph

import (
	"slices"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// ImportOptions are what Import needs beside the graph. A limit of 0 is its default.
type ImportOptions struct {
	// Set has the definitions of the ops.
	Set KernelSet
	// MaxNodes is the largest number of nodes, those of the function bodies included.
	MaxNodes int
	// MaxEdges is the largest number of inputs and outputs of all nodes.
	MaxEdges int
	// MaxConstantBytes is the largest size of the tensors in attributes, all nodes together.
	MaxConstantBytes int64
}

// budget is what is left of the limits while a graph is imported.
type budget struct {
	o         ImportOptions
	nodes     int
	edges     int
	constants int64
}

func newBudget(o ImportOptions) *budget {
	if o.MaxNodes == 0 {
		o.MaxNodes = DefaultMaxNodes
	}
	if o.MaxEdges == 0 {
		o.MaxEdges = DefaultMaxEdges
	}
	if o.MaxConstantBytes == 0 {
		o.MaxConstantBytes = DefaultMaxConstantBytes
	}
	return &budget{o: o, nodes: o.MaxNodes, edges: o.MaxEdges, constants: o.MaxConstantBytes}
}

// taken returns about how many bytes what was counted takes when the graph is ready to run.
func (b *budget) taken() int64 {
	return b.o.MaxConstantBytes - b.constants + nodeBytes*int64(b.o.MaxNodes-b.nodes) + edgeBytes*int64(b.o.MaxEdges-b.edges)
}

// takeNodes counts the nodes of the graph or of a function.
func (b *budget) takeNodes(where string, n int) error {
	if b.nodes -= n; b.nodes < 0 {
		return status.Errorf(status.ResourceExhausted, "%s has %d nodes, and the graph with its functions may have %d: register smaller graphs, or raise the limit", where, n, b.o.MaxNodes)
	}
	return nil
}

func (b *budget) takeEdges(node string, n int) error {
	if n < 0 || n > b.edges {
		return status.Errorf(status.ResourceExhausted, "node %q: with its %d inputs or outputs the graph has more than %d", node, n, b.o.MaxEdges)
	}
	b.edges -= n
	return nil
}

// Import checks a GraphDef from a stranger and returns its Graph. It fills in the attributes at
// their defaults, and compares every input with the definition of its op. The error names the node:
// Unimplemented for an op that the set lacks, ResourceExhausted for a graph beyond the limits, else
// InvalidArgument. def belongs to the Graph afterwards.
func Import(def *tfpb.GraphDef, o ImportOptions) (*Graph, error) {
	b := newBudget(o)
	if err := b.takeNodes("the graph", len(def.GetNode())); err != nil {
		return nil, err
	}
	lib, err := newLibrary(def.GetLibrary(), def.GetVersions().GetProducer(), b)
	if err != nil {
		return nil, err
	}
	if err := refuseArguments(def.GetNode()); err != nil {
		return nil, err
	}
	im := importer{lib: lib, budget: b, producer: def.GetVersions().GetProducer()}
	g, err := im.run(def.GetNode())
	if err != nil {
		return nil, err
	}
	if err := lib.check(g, b); err != nil {
		return nil, err
	}
	g.Bytes = b.taken()
	return g, nil
}

// refuseArguments refuses the nodes that only the body of a function has, one for each argument and
// result. A second _Retval of a result would set it from another goroutine.
func refuseArguments(defs []*tfpb.NodeDef) error {
	for _, d := range defs {
		if k := kindOf(d.GetOp()); k == kindArg || k == kindRetval {
			return status.Errorf(status.InvalidArgument, "node %q has the op %s, which is made for the arguments and results of a function: a graph must not have it", d.GetName(), d.GetOp())
		}
	}
	return nil
}

// importer imports the nodes of one graph or function body.
type importer struct {
	lib      *Library
	budget   *budget
	producer int32
	function *instance // nil for the graph itself

	g      *Graph
	byName map[string]*Node
	// waits has, for each node, the last one that was connected to it by a control edge, as its ID + 1. A
	// node may name 100,000 control inputs, so the list of them is not searched.
	waits []int
}

func (im *importer) run(defs []*tfpb.NodeDef) (*Graph, error) {
	im.g = &Graph{Library: im.lib, Producer: im.producer, Nodes: make([]*Node, 0, len(defs))}
	im.byName = make(map[string]*Node, len(defs))
	for _, d := range defs {
		if err := im.addNode(d); err != nil {
			return nil, err
		}
	}
	if im.function != nil {
		if err := im.function.nameArgs(im.g.Nodes); err != nil {
			return nil, err
		}
	}
	im.waits = make([]int, len(im.g.Nodes))
	for _, n := range im.g.Nodes {
		if err := im.connect(n); err != nil {
			return nil, err
		}
	}
	for _, n := range im.g.Nodes {
		n.addOut()
	}
	if err := checkCycles(im.g); err != nil {
		return nil, err
	}
	if _, err := analyseFrames(im.g); err != nil {
		return nil, err
	}
	return im.g, nil
}

// addNode adds a node without its inputs.
func (im *importer) addNode(d *tfpb.NodeDef) error {
	if err := checkName("node", d.GetName()); err != nil {
		return err
	}
	if im.byName[d.GetName()] != nil {
		return status.Errorf(status.InvalidArgument, "Node '%s' is not unique", d.GetName())
	}
	opDef, err := im.opDef(d)
	if err != nil {
		return err
	}
	n := &Node{ID: len(im.g.Nodes), Name: d.GetName(), Op: d.GetOp(), Device: d.GetDevice(), Def: d, OpDef: opDef}
	if err := im.checkAttrs(n); err != nil {
		return err
	}
	if n.InTypes, err = im.argTypes(n, opDef.GetInputArg()); err != nil {
		return err
	}
	if n.OutTypes, err = im.argTypes(n, opDef.GetOutputArg()); err != nil {
		return err
	}
	im.g.Nodes = append(im.g.Nodes, n)
	im.byName[n.Name] = n
	if im.function != nil {
		return im.function.addOutputs(n)
	}
	return nil
}

// opDef returns the definition of a node's op or function.
func (im *importer) opDef(d *tfpb.NodeDef) (*tfpb.OpDef, error) {
	if f := im.lib.find(d.GetOp()); f != nil {
		return f.GetSignature(), nil
	}
	def := im.budget.o.Set.OpDef(d.GetOp())
	if def == nil {
		def = builtin(d.GetOp())
	}
	switch {
	case d.GetOp() == "SymbolicGradient":
		return nil, status.Errorf(status.Unimplemented, "node %q: SymbolicGradient differentiates a function when it runs, which no kernel set does here: build the gradient into the graph with tf.gradients", d.GetName())
	case d.GetOp() == "RemoteCall":
		return nil, status.Errorf(status.Unimplemented, "node %q: RemoteCall runs a function on another device, which is not supported: place the nodes there with tf.device", d.GetName())
	case def == nil:
		return nil, status.Errorf(status.Unimplemented, "Op type not registered '%s' in the kernel set %q of this process, for node %q: %s", d.GetOp(), im.budget.o.Set.Name(), d.GetName(), whatToDo(im.budget.o.Set))
	}
	if v := def.GetDeprecation().GetVersion(); v > 0 && im.producer >= v {
		return nil, status.Errorf(status.Unimplemented, "node %q: Op %s is not available in GraphDef version %d. It has been removed in version %d. %s", d.GetName(), d.GetOp(), im.producer, v, def.GetDeprecation().GetExplanation())
	}
	return def, nil
}

// whatToDo ends the error about an op that the set lacks.
func whatToDo(set KernelSet) string {
	if set.Name() == "go" {
		return "place it on a task that has it, run tryst-tensorflow, whose kernels are those of TensorFlow, or register a kernel (docs/ops.md)"
	}
	return "place it on a task that has it"
}

// argTypes returns the types of the inputs or outputs that the definition declares, for the
// attributes of the node.
func (im *importer) argTypes(n *Node, list []*tfpb.OpDef_ArgDef) ([]tensor.DType, error) {
	var types []tensor.DType
	for _, a := range list {
		first := len(types)
		count, t := int64(1), a.GetType()
		if a.GetTypeAttr() != "" {
			t = n.Attr(a.GetTypeAttr()).GetType()
		}
		if a.GetNumberAttr() != "" {
			if count = n.Int(a.GetNumberAttr()); count < 0 {
				return nil, status.Errorf(status.InvalidArgument, "node %q: attribute %q is %d, and it is the length of %q", n.Name, a.GetNumberAttr(), count, a.GetName())
			}
		}
		if a.GetTypeListAttr() != "" {
			listed := n.Types(a.GetTypeListAttr())
			if err := im.budget.takeEdges(n.Name, len(listed)); err != nil {
				return nil, err
			}
			types = append(types, listed...)
		} else {
			if err := im.budget.takeEdges(n.Name, int(min(count, 1<<31-1))); err != nil {
				return nil, err
			}
			types = append(types, slices.Repeat([]tensor.DType{tensor.DType(t)}, int(count))...)
		}
		for i := first; i < len(types); i++ {
			switch {
			case !types[i].Base().Valid():
				return nil, status.Errorf(status.InvalidArgument, "node %q: %q has the type %d, which is none", n.Name, a.GetName(), int32(types[i]))
			case a.GetIsRef() && types[i].IsRef():
				return nil, status.Errorf(status.InvalidArgument, "node %q: %q would be a reference to the reference type %v", n.Name, a.GetName(), types[i])
			case a.GetIsRef():
				types[i] += refOffset
			}
		}
	}
	return types, nil
}

// refOffset is the difference between a type and its reference type (types.proto).
const refOffset = 100

// connect resolves the inputs of a node.
func (im *importer) connect(n *Node) error {
	n.In = make([]Output, 0, len(n.InTypes))
	if err := im.budget.takeEdges(n.Name, max(0, len(n.Def.GetInput())-len(n.InTypes))); err != nil {
		return err
	}
	for _, text := range n.Def.GetInput() {
		if in := parseInput(text); in.control {
			src := im.byName[in.node]
			if src == nil {
				return unknownInput(n, text)
			}
			if im.waits[src.ID] != n.ID+1 {
				im.waits[src.ID] = n.ID + 1
				n.ControlIn = append(n.ControlIn, src)
			}
			continue
		}
		list, err := im.resolve(n, text)
		if err != nil {
			return err
		}
		for _, o := range list {
			if err := im.addInput(n, o); err != nil {
				return err
			}
		}
	}
	if len(n.In) != len(n.InTypes) {
		return im.wrongCount(n)
	}
	return nil
}

// resolve returns the outputs that a data input names: one, or all of a list in a function.
func (im *importer) resolve(n *Node, text string) ([]Output, error) {
	if im.function != nil {
		list := im.function.resolve(text)
		if len(list) == 0 {
			return nil, unknownInput(n, text)
		}
		return list, nil
	}
	in := parseInput(text)
	src := im.byName[in.node]
	switch {
	case src == nil:
		return nil, unknownInput(n, text)
	case in.index >= len(src.OutTypes):
		return nil, status.Errorf(status.InvalidArgument, "Node '%s': Connecting to invalid output %d of source node %s which has %d outputs.", n.Name, in.index, src.Name, len(src.OutTypes))
	}
	return []Output{{Node: src, Index: in.index}}, nil
}

func unknownInput(n *Node, text string) error {
	return status.Errorf(status.InvalidArgument, "Node '%s': Unknown input node '%s'", n.Name, text)
}

// addInput connects the next data input of a node.
func (im *importer) addInput(n *Node, o Output) error {
	switch {
	case len(n.ControlIn) > 0:
		return status.Errorf(status.InvalidArgument, "Node '%s': Control dependencies must come after regular dependencies", n.Name)
	case len(n.In) == len(n.InTypes):
		return im.wrongCount(n)
	}
	got, want := o.Node.OutTypes[o.Index], n.InTypes[len(n.In)]
	// A reference may feed an input that is none: the node gets the value of the moment.
	if got != want && (want.IsRef() || got.Base() != want) {
		return status.Errorf(status.InvalidArgument, "Input %d of node %s was passed %v from %s:%d incompatible with expected %v.", len(n.In), n.Name, got, o.Node.Name, o.Index, want)
	}
	n.In = append(n.In, o)
	return nil
}

func (im *importer) wrongCount(n *Node) error {
	count := 0
	for _, text := range n.Def.GetInput() {
		if !parseInput(text).control {
			count++
		}
	}
	return status.Errorf(status.InvalidArgument, "Node '%s': op %s has %d inputs with these attributes, but the node names %d", n.Name, n.Op, len(n.InTypes), max(count, len(n.In)))
}

// addOut adds the edges that end at n to the nodes where they begin.
func (n *Node) addOut() {
	for i, in := range n.In {
		in.Node.Out = append(in.Node.Out, Edge{From: in.Index, To: n, Input: i})
	}
	for _, c := range n.ControlIn {
		c.Out = append(c.Out, Edge{From: ControlSlot, To: n, Input: ControlSlot})
	}
}
