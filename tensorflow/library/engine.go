package library

import (
	"context"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// engine runs functions: in this process (local), or in a child (process).
type engine interface {
	version() string
	// opList is an OpList message, and kernels a KernelList message.
	opList() ([]byte, error)
	kernels(op string) ([]byte, error)
	newContext() (engineContext, error)
	// ended is nil, or says why the engine runs nothing any more.
	ended() error
	close()
}

// engineContext is a TensorFlow context of an engine.
type engineContext interface {
	addFunction(name string, def []byte) error
	removeFunction(name string) error
	// startStep and endStep are around all that uses what lives only for a step.
	startStep()
	endStep()
	run(ctx context.Context, r *run) error
	// delete ends the context; nothing holds it any more.
	delete()
}

// run is one run of a function.
type run struct {
	function string
	// owner is what the opaque values among the outputs hold.
	owner           *countedContext
	inputs, outputs []graph.Value
	allocator       tensor.Allocator
}
