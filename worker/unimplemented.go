package worker

import (
	"context"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/status"
)

// unimplemented refuses methods that this worker does not have. A TensorFlow master returns the
// error to its client.
type unimplemented struct{}

func refuse(method string) error {
	return status.Errorf(status.Unimplemented, "%s: this worker moves tensors and runs no graphs", method)
}

func (unimplemented) Logging(context.Context, *tfpb.LoggingRequest) (*tfpb.LoggingResponse, error) {
	return nil, refuse("Logging")
}

func (unimplemented) Tracing(context.Context, *tfpb.TracingRequest) (*tfpb.TracingResponse, error) {
	return nil, refuse("Tracing")
}
