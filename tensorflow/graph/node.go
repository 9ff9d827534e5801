package graph

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensor"
)

// Graph is a graph whose nodes have been checked against their definitions. Nobody changes it once
// an Executor has it.
type Graph struct {
	// Nodes are in the order of their IDs: Nodes[i].ID == i.
	Nodes []*Node
	// Library has the functions that nodes may call; nil when there are none.
	Library *Library
	// Producer is the version of the program that has made the graph.
	Producer int32
	// Bytes is about what the graph takes when it is ready to run, with its functions: constants as tensors,
	// nodes and edges. Import sets it.
	Bytes int64
}

// Node is one operation of a Graph.
type Node struct {
	ID     int
	Name   string
	Op     string
	Device string // full device name, as in the GraphDef

	// Def is the node as it was registered, with the attributes that were left out at their
	// defaults. It is shared and must not be changed.
	Def *tfpb.NodeDef
	// OpDef is the definition of Op.
	OpDef *tfpb.OpDef

	// InTypes and OutTypes are the types of the data inputs and outputs, in order. A type may be
	// a reference (tensor.DType.IsRef).
	InTypes, OutTypes []tensor.DType

	// In are the data inputs, in order. ControlIn are the nodes that must have run before.
	In        []Output
	ControlIn []*Node
	// Out are the edges that leave the node, data edges and control edges.
	Out []Edge

	// Subgraph is what a State that made the node in Rewrite knows of it, for its NewKernel; else nil.
	Subgraph any
}

// Output is one output of a node.
type Output struct {
	Node  *Node
	Index int
}

// Edge goes from an output of a node to an input of another.
type Edge struct {
	// From is the index of the output; ControlSlot for a control edge.
	From int
	To   *Node
	// Input is the index of To's input; ControlSlot for a control edge.
	Input int
}

// ControlSlot is the index of both ends of a control edge.
const ControlSlot = -1
