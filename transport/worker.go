package transport

import (
	"context"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// Worker is TensorFlow's WorkerService as Go calls: the worker of this process
// itself, or a stub for one elsewhere. Errors are *status.Error.
type Worker interface {
	GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error)
	CreateWorkerSession(context.Context, *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error)
	DeleteWorkerSession(context.Context, *tfpb.DeleteWorkerSessionRequest) (*tfpb.DeleteWorkerSessionResponse, error)
	RegisterGraph(context.Context, *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error)
	DeregisterGraph(context.Context, *tfpb.DeregisterGraphRequest) (*tfpb.DeregisterGraphResponse, error)
	RunGraph(context.Context, *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error)
	CleanupGraph(context.Context, *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error)
	CleanupAll(context.Context, *tfpb.CleanupAllRequest) (*tfpb.CleanupAllResponse, error)
	// RecvTensor waits for the value of a key. The caller releases the
	// tensor of the answer.
	RecvTensor(context.Context, *tfpb.RecvTensorRequest) (*TensorResponse, error)
	RecvBuf(context.Context, *tfpb.RecvBufRequest) (*tfpb.RecvBufResponse, error)
	Logging(context.Context, *tfpb.LoggingRequest) (*tfpb.LoggingResponse, error)
	Tracing(context.Context, *tfpb.TracingRequest) (*tfpb.TracingResponse, error)
	CompleteGroup(context.Context, *tfpb.CompleteGroupRequest) (*tfpb.CompleteGroupResponse, error)
	CompleteInstance(context.Context, *tfpb.CompleteInstanceRequest) (*tfpb.CompleteInstanceResponse, error)
	GetStepSequence(context.Context, *tfpb.GetStepSequenceRequest) (*tfpb.GetStepSequenceResponse, error)
	MarkRecvFinished(context.Context, *tfpb.MarkRecvFinishedRequest) (*tfpb.MarkRecvFinishedResponse, error)
}

// TensorResponse is RecvTensorResponse with the tensor as memory rather than
// as a message.
type TensorResponse struct {
	// Tensor is the value; the receiver of the response releases it.
	Tensor *tensor.Tensor
	// Dead says that the value's producer was not executed (the untaken
	// side of a branch); the tensor is then empty.
	Dead bool
	// SendStartMicros is when the sender put the value under its key, in
	// microseconds since 1970 by the sender's clock; 0 when not known.
	SendStartMicros int64
	// RequireAck asks the receiver for MarkRecvFinished.
	RequireAck bool
	// Options travels in transport_options; nil for none.
	Options *anypb.Any
}

// WorkerCache finds the workers of a cluster.
type WorkerCache interface {
	// Worker returns the worker of a task: this process's own for its own
	// task, a stub for another one. NotFound for a task that the cluster
	// does not have.
	Worker(cluster.Task) (Worker, error)
	// Tasks lists the tasks of the cluster, this process's own included.
	Tasks() []cluster.Task
}

// Transport brings tensors from other tasks to this one.
type Transport interface {
	// Remoter receives from other tasks on behalf of a step.
	rendezvous.Remoter
	// Name is what the --transport flag calls it.
	Name() string
	// Close ends all receives with Cancelled and waits, until ctx ends, for
	// their callbacks and for what is still to be said to peers.
	Close(ctx context.Context) error
}

// Caller tells a Worker who called, as far as its wire knows.
type Caller struct {
	// Address is the network address of the caller, for limits and logs.
	Address string
	// Chunks says that the caller takes large content in chunks.
	Chunks bool
	// Accept is called for a request of a Tryst peer that has passed all checks
	// of the Worker, before the request has any effect. The wire checks there
	// what it knows of the caller; an error refuses the request. left is the
	// generation of a channel that the request says the asker has left, 0 for
	// none. Nil accepts every request.
	Accept func(ctx context.Context, a Process, left uint64) error
}

type callerKey struct{}

// WithCaller returns a context that says who called.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns what WithCaller said; the zero Caller when nothing was.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
