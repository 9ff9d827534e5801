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

func (unimplemented) RecvBuf(context.Context, *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error) {
	return nil, refuse("RecvBuf")
}

func (unimplemented) Logging(context.Context, *tfpb.LoggingRequest) (*tfpb.LoggingResponse, error) {
	return nil, refuse("Logging")
}

func (unimplemented) Tracing(context.Context, *tfpb.TracingRequest) (*tfpb.TracingResponse, error) {
	return nil, refuse("Tracing")
}

func (unimplemented) CompleteGroup(context.Context, *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error) {
	return nil, refuse("CompleteGroup")
}

func (unimplemented) CompleteInstance(context.Context, *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error) {
	return nil, refuse("CompleteInstance")
}

func (unimplemented) GetStepSequence(context.Context, *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error) {
	return nil, refuse("GetStepSequence")
}
