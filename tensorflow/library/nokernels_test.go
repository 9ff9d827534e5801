package library

import (
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// noKernels is a kernel set without kernels.
type noKernels struct{}

func (noKernels) Name() string                   { return "go" }
func (noKernels) OpDef(string) *tfpb.OpDef       { return nil }
func (noKernels) NewState() (graph.State, error) { return nil, nil }
