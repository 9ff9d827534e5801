package graph

import (
	"context"

	"github.com/tryst-rdma/tryst/status"
)

// Executor runs one graph, any number of times and at once.
type Executor struct{}

// NewExecutor returns the executor of the graph of one device, after it has made the kernels of all
// nodes. The error names the node.
func NewExecutor(g *Graph, s State) (*Executor, error) {
	return nil, status.New(status.Unimplemented, "graph: NewExecutor")
}

// Run runs the graph once. It returns when no kernel of the run is under way any more, with the
// first error that is not derived. When ctx ends the run ends with Cancelled.
func (e *Executor) Run(ctx context.Context, step *Step) error {
	return status.New(status.Unimplemented, "graph: Run")
}

// hasNode reports whether a message names a node already.
func hasNode(message string) bool { return false }
