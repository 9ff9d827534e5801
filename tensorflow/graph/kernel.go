package graph

import (
	"context"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// KernelSet is the ops that a process can run. It is safe for concurrent use.
type KernelSet interface {
	// Name is "go" or "tensorflow".
	Name() string
	// OpDef returns the definition of an op; nil when the set does not have it. The caller must
	// not change it.
	OpDef(op string) *tfpb.OpDef
	// NewState returns the state of one worker session without variables. Others may share its
	// variables (State.NewSession).
	NewState() (State, error)
}

// State is what a KernelSet keeps for a worker session, or for several that share their state. It
// is safe for concurrent use.
type State interface {
	// NewSession returns the state as one more session has it: with the same variables, and the same
	// queues that have a shared_name. What a node keeps for itself, such as the generator of a random node
	// or a queue without a shared_name, it has once in each session, by its name, for all graphs of the
	// session. Close of the result frees that and nothing else.
	NewSession() State
	// Rewrite may replace nodes of a graph of one device before kernels are made for them; a set
	// that runs each node by itself returns g. The result is a new Graph, or g unchanged.
	Rewrite(g *Graph) (*Graph, error)
	// NewKernel returns the kernel of one node of a graph of the state. An attribute or type that
	// the set lacks is Unimplemented, and the text says what to do. NewKernel may be called again
	// for the same node name by other graphs.
	NewKernel(n *Node) (Kernel, error)
	// Reset drops the variables and queues of the containers; those of the default container, which
	// has the name "localhost", when none is named, as in TensorFlow.
	Reset(containers []string)
	// Close frees the state, when no step runs any more, and those of NewSession are closed.
	Close()
}

// Kernel computes one node. It is made once for a registered graph, and several steps may call it
// at once.
type Kernel interface {
	// Compute computes the outputs of the node from its inputs, and sets each of them. A kernel
	// that may wait for others, such as a receive or a dequeue, implements AsyncKernel or
	// BlockingKernel instead.
	Compute(c *Context) error
}

// AsyncKernel is a Kernel that may wait. The executor calls ComputeAsync in place of Compute.
type AsyncKernel interface {
	Kernel
	// ComputeAsync begins the computation and does not block. It calls done once, from any
	// goroutine, after the outputs are set. It ends soon after c.Ctx has ended.
	ComputeAsync(c *Context, done func(error))
}

// BlockingKernel is a Kernel whose Compute may wait and keeps the thread of its caller, such as a call of
// another library. The executor calls Compute on a goroutine that has nothing else to do.
type BlockingKernel interface {
	Kernel
	// Blocks does nothing: it tells the executor.
	Blocks()
}

// KernelFunc is a Kernel that is a function.
type KernelFunc func(c *Context) error

// Compute implements Kernel.
func (f KernelFunc) Compute(c *Context) error { return f(c) }

// Value is what travels along a data edge. At most one of Tensor, Var and Opaque is set; a dead
// value may have none.
type Value struct {
	// Tensor has a reference that belongs to the holder of the Value.
	Tensor *tensor.Tensor
	// Var is the variable that a reference edge refers to, or whose memory a node like Identity hands on.
	Var *Variable
	// Opaque is a resource or variant.
	Opaque Opaque
	// Dead says that the value comes from a branch that was not taken.
	Dead bool
}

// Opaque is a value that stays in this process: a handle of a resource, or a variant. Its
// references are counted, as those of a tensor.
type Opaque interface {
	Retain()
	Release()
}

// Look calls f with the tensor that v has, or that its variable has at present; with nil if there is none.
// f may use it until it returns.
func (v Value) Look(f func(*tensor.Tensor)) {
	t := v.Tensor
	if v.Var != nil {
		if t = v.Var.Snapshot(); t != nil {
			defer t.Release()
		}
	}
	f(t)
}

// Retain adds a reference to what v holds, and returns v.
func (v Value) Retain() Value {
	switch {
	case v.Tensor != nil:
		v.Tensor.Retain()
	case v.Opaque != nil:
		v.Opaque.Retain()
	}
	return v
}

// Release releases the reference that v holds.
func (v Value) Release() {
	switch {
	case v.Tensor != nil:
		v.Tensor.Release()
	case v.Opaque != nil:
		v.Opaque.Release()
	}
}

// Context is one run of a kernel. It is valid until Compute returns, or done is called.
type Context struct {
	run *run
	// Ctx ends when the step ends before its time: by an error, a cancel or an abort.
	Ctx  context.Context
	Step *Step
	Node *Node
	// FrameIter is the iteration of a loop that the node runs in; zero outside loops.
	FrameIter rendezvous.FrameIter
	// InDead says that an input is dead, for the kernels that run all the same: those that send and
	// receive, and Merge.
	InDead bool

	// Inputs are the values of the data inputs. They belong to the executor, which releases them
	// after the kernel has ended. A kernel that keeps one calls Retain, or takes the reference over
	// and sets the element to Value{}. An input that the op does not declare as a reference never
	// has a Var: the executor takes a snapshot. The exception is the kernel of Identity and its like, which
	// calls Forward and looks at no tensor.
	Inputs []Value
	// Outputs are the values of the data outputs, set by the kernel: each has a value of its type, or is
	// Dead. Their references belong to the executor, also when the kernel fails.
	Outputs []Value

	scratch []*tensor.Buffer // of Scratch
}

// Input returns the tensor of input i; nil when it is a resource or a reference. The executor has
// checked its type.
func (c *Context) Input(i int) *tensor.Tensor { return c.Inputs[i].Tensor }

// Set sets output i to t, and takes over the caller's reference.
func (c *Context) Set(i int, t *tensor.Tensor) { c.Outputs[i] = Value{Tensor: t} }

// Forward sets output i to the value of input j.
func (c *Context) Forward(i, j int) { c.Outputs[i] = c.Inputs[j].Retain() }

// Allocate returns a tensor with undefined content from the allocator of the step.
func (c *Context) Allocate(dtype tensor.DType, shape tensor.Shape) (*tensor.Tensor, error) {
	return tensor.Allocate(c.Step.Allocator, dtype, shape)
}

// Scratch counts n bytes that a kernel needs beside its outputs, before it makes them, in the allocator of the
// step, until Compute returns. It is for memory whose size a graph or a feed chooses; little of it is not counted.
func (c *Context) Scratch(n int64) error {
	if n < minScratch {
		return nil
	}
	held, err := tensor.Reserve(c.Step.Allocator, n)
	if err != nil {
		return err
	}
	c.scratch = append(c.scratch, held)
	return nil
}

// endScratch gives back what Scratch has counted.
func (c *Context) endScratch() {
	for _, held := range c.scratch {
		held.Release()
	}
	c.scratch = nil
}

// Errorf returns an error that names the node, as TensorFlow's kernels do: "<text>\n\t [[{{node N}}]]".
func (c *Context) Errorf(code status.Code, format string, args ...any) error {
	return NodeError(c.Node.Name, status.Errorf(code, format, args...))
}
