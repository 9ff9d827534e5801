package graph

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// ImportOptions are what Import needs beside the graph.
type ImportOptions struct {
	// Set has the definitions of the ops.
	Set KernelSet
}

// Import checks a GraphDef from a stranger and returns its Graph. It fills in the attributes at
// their defaults, and compares every input with the definition of its op. The error names the node.
// def belongs to the Graph afterwards.
func Import(def *tfpb.GraphDef, o ImportOptions) (*Graph, error) {
	return nil, status.New(status.Unimplemented, "graph: Import")
}

// Split returns the parts of a graph by device, with a _Send and a _Recv in place of each edge from
// one device to another. incarnation returns that of a device of this process; a node on another
// device is InvalidArgument.
func Split(g *Graph, incarnation func(device string) (uint64, bool)) (map[string]*Graph, error) {
	return nil, status.New(status.Unimplemented, "graph: Split")
}

// Library is the functions of a graph by name.
type Library struct{}
