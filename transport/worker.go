package transport

import (
	"context"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/tryst-rdma/tryst/cluster"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/tensor"
)

// Worker is TensorFlow's WorkerService as a Go interface. It is the worker of this process,
// or a stub for a worker of another process. Errors are *status.Error.
type Worker interface {
	GetStatus(context.Context, *tfpb.GetStatusRequest) (*tfpb.GetStatusResponse, error)
	CreateWorkerSession(context.Context, *tfpb.CreateWorkerSessionRequest) (*tfpb.CreateWorkerSessionResponse, error)
	DeleteWorkerSession(context.Context, *tfpb.DeleteWorkerSessionRequest) (*tfpb.DeleteWorkerSessionResponse, error)
	RegisterGraph(context.Context, *tfpb.RegisterGraphRequest) (*tfpb.RegisterGraphResponse, error)
	DeregisterGraph(context.Context, *tfpb.DeregisterGraphRequest) (*tfpb.DeregisterGraphResponse, error)
	RunGraph(context.Context, *tfpb.RunGraphRequest) (*tfpb.RunGraphResponse, error)
	CleanupGraph(context.Context, *tfpb.CleanupGraphRequest) (*tfpb.CleanupGraphResponse, error)
	CleanupAll(context.Context, *tfpb.CleanupAllRequest) (*tfpb.CleanupAllResponse, error)
	// RecvTensor waits for the value of a key. The caller must release the tensor of the
	// response.
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
	// Dead means that the producer of the value was not executed (the branch was not
	// taken). The tensor is then empty.
	Dead bool
	// Requester is the Tryst process that made the request; zero for any other peer.
	Requester Process
	// SendStartMicros is when the sender sent the value to its rendezvous, in microseconds
	// since 1970 by the sender's clock; 0 when unknown.
	SendStartMicros int64
	// RequireAck asks the receiver to acknowledge the response by MarkRecvFinished.
	RequireAck bool
	// Options is the field transport_options; nil for none.
	Options *anypb.Any
	// Failed, if it is not nil, is called when the response cannot be encoded, with the error
	// that the caller gets instead, and before the caller gets it: the value is lost. It is not
	// called when the call has ended, since the caller may ask for the value again.
	Failed func(error)
	// Sent, if it is not nil, is called once: with nil when the response has been given to
	// the connection of a caller that does not acknowledge it, or with why it was not.
	Sent func(error)
}

// WorkerCache finds the workers of a cluster.
type WorkerCache interface {
	// Worker returns the worker of a task: this process's worker for its own task, a stub
	// for any other. It returns NotFound for a task that is not in the cluster.
	Worker(cluster.Task) (Worker, error)
	// Tasks returns the tasks of the cluster, including that of this process.
	Tasks() []cluster.Task
}

// Transport brings tensors from other tasks to this one.
type Transport interface {
	// Remoter receives from other tasks on behalf of a step.
	rendezvous.Remoter
	// RecvFrom is RecvFromRemoteAsync from a task that is named beside the key: in the cluster of a
	// session, whose names the key has, the same process may have another name.
	RecvFrom(task cluster.Task, step int64, key rendezvous.Key, args rendezvous.Args, done rendezvous.DoneFunc) rendezvous.Transfer
	// Name is the transport's name in the --transport flag.
	Name() string
	// Close ends all receives with Cancelled. It waits, until ctx ends, for their callbacks
	// and until pending acks and cancels are sent to the peers.
	Close(ctx context.Context) error
}

// Caller is what a transport knows of the caller of a Worker.
type Caller struct {
	// Address is the network address of the caller, for limits and logs.
	Address string
	// Share names what the caller counts as, for limits: the names in its certificate, which it has
	// proven, otherwise its host (identity.AddressOf). Empty for a caller in this process.
	Share string
	// Chunks reports whether the caller accepts large content in chunks.
	Chunks bool
	// Covers returns PermissionDenied if the caller has proven its name, and may not act as the
	// process at a place. Nil for a caller that has proven nothing: it may use every name.
	Covers func(cluster.Place) error
	// Accept checks the requester of a Tryst request against what the transport knows of
	// the caller. The Worker calls it after its own checks, before the request has any
	// effect; an error refuses the request. left is the channel generation that the
	// requester reports to have left, 0 for none. Nil accepts every request.
	Accept func(ctx context.Context, requester Process, left uint64) error
}

type callerKey struct{}

// WithCaller returns a context with a Caller.
func WithCaller(ctx context.Context, c Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerOf returns the Caller of a context; the zero Caller when it has none.
func CallerOf(ctx context.Context) Caller {
	c, _ := ctx.Value(callerKey{}).(Caller)
	return c
}
