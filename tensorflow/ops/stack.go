package ops

import (
	"math"
	"slices"
	"sync"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// stackOps are stacks: the loop that computes a gradient takes from them what the iterations of the other loop have pushed.
func stackOps() []entry {
	return []entry{
		{`StackV2(max_size: int32) -> (handle: resource); elem_type: type; stack_name: string = ""; stateful`, newStack},
		{`StackPushV2(handle: resource, elem: T) -> (output: T); T: type; swap_memory: bool = false; stateful`, moving("T", stackPush)},
		{`StackPopV2(handle: resource) -> (elem: elem_type); elem_type: type; stateful`, moving("elem_type", stackPop)},
		{`StackCloseV2(handle: resource); stateful`, always(stackClose)},
	}
}

// stack is a stack of tensors.
type stack struct {
	stepObject
	dtype tensor.DType
	most  int

	mu       sync.Mutex // guards the fields below
	elements []*tensor.Tensor
	closed   bool
}

func newStack(n *graph.Node, s *State) (graph.Kernel, error) {
	dtype, name := n.Type("elem_type"), nameIn(n, "stack_name")
	if !movable(dtype) {
		return nil, noType("elem_type", dtype)
	}
	return graph.KernelFunc(func(c *graph.Context) error {
		size, err := sizeOf(c, "Stack size must be a scalar")
		if err != nil {
			return err
		}
		if size < 0 {
			size = math.MaxInt32
		}
		k := &stack{dtype: dtype, most: int(size)}
		if err := k.begin(c, s.numbered(name), k.clear); err != nil {
			return err
		}
		c.Outputs[0] = graph.Value{Opaque: k}
		return nil
	}), nil
}

// stackAt returns the stack of input 0.
func stackAt(c *graph.Context) (*stack, error) {
	k, ok := c.Inputs[0].Opaque.(*stack)
	if !ok {
		return nil, invalid("%s is not a stack", argName(c, 0))
	}
	return k, nil
}

func stackPush(c *graph.Context) error {
	k, err := stackAt(c)
	if err != nil {
		return err
	}
	t := c.Input(1)
	if t.DType() != k.dtype {
		return invalid("Must have type %d but got %d", int(k.dtype), int(t.DType())) // as in TensorFlow
	}
	if err := k.push(c.Step.Allocator, t); err != nil {
		return err
	}
	c.Forward(0, 1)
	return nil
}

func (k *stack) push(a tensor.Allocator, t *tensor.Tensor) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.closed:
		return k.errClosed()
	case len(k.elements) >= k.most:
		return invalid("Stack[%s] overflowed its max_size (%d)", k.name, k.most)
	}
	if err := k.overhead.add(a, partBytes); err != nil {
		return err
	}
	k.elements = append(k.elements, t.Retain())
	return nil
}

func (k *stack) errClosed() error {
	return status.Errorf(status.InvalidArgument, "Stack[%s] has already been closed.", k.name)
}

func stackPop(c *graph.Context) error {
	k, err := stackAt(c)
	if err != nil {
		return err
	}
	t, err := k.pop()
	if err != nil {
		return err
	}
	if want := c.Node.Type("elem_type"); t.DType() != want {
		t.Release()
		return otherOutput(c, k.dtype, want)
	}
	c.Set(0, t)
	return nil
}

// pop takes the last element, whose reference is the caller's.
func (k *stack) pop() (*tensor.Tensor, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	last := len(k.elements) - 1
	switch {
	case k.closed:
		return nil, k.errClosed()
	case last < 0:
		return nil, invalid("Stack[%s] is empty when calling Pop().", k.name)
	}
	t := k.elements[last]
	k.elements[last] = nil
	k.elements = k.elements[:last]
	if spare := cap(k.elements); spare > 64 && 4*last < spare {
		k.elements = slices.Clone(k.elements)
	}
	k.overhead.give(partBytes)
	return t, nil
}

func stackClose(c *graph.Context) error {
	k, err := stackAt(c)
	if err == nil {
		k.clear()
	}
	return err
}

// clear closes the stack.
func (k *stack) clear() {
	k.mu.Lock()
	elements := k.elements
	k.elements, k.closed = nil, true
	k.mu.Unlock()
	releaseTensors(elements)
	k.overhead.give(partBytes * int64(len(elements)))
}
