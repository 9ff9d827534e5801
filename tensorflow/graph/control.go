package graph

import (
	"slices"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// controlKernel returns the kernel of a node that controls where values go.
func controlKernel(it *item) Kernel {
	switch it.kind {
	case kindSwitch:
		return KernelFunc(runSwitch)
	case kindMerge:
		return mergeKernel{indexed: it.used(1)}
	case kindControlTrigger:
		return KernelFunc(func(*Context) error { return nil })
	default:
		return KernelFunc(runMove)
	}
}

// used reports whether a node gets output i.
func (it *item) used(i int) bool { return !slices.Contains(it.unused, i) }

// move sets output i to input j, whose reference it takes over.
func (c *Context) move(i, j int) {
	c.Outputs[i] = c.Inputs[j]
	c.Inputs[j] = Value{}
}

// runMove is Enter, Exit, NextIteration and LoopCond.
func runMove(c *Context) error {
	c.move(0, 0)
	return nil
}

// runSwitch is Switch, whose second input is a bool, and _SwitchN, where it is the index of the
// output; the last output is that for all other indices.
func runSwitch(c *Context) error {
	taken, err := switchIndex(c.Input(1), len(c.Outputs))
	if err != nil {
		return err
	}
	for i := range c.Outputs {
		c.Outputs[i] = Value{Dead: true}
	}
	c.move(taken, 0)
	return nil
}

func switchIndex(t *tensor.Tensor, n int) (int, error) {
	if t.Shape().Elements() != 1 {
		return 0, status.Errorf(status.InvalidArgument, "The second input must be a scalar, but it has shape %v", t.Shape())
	}
	if t.DType() == tensor.Bool {
		b, err := tensor.Values[bool](t)
		if err == nil && b[0] {
			return 1, nil
		}
		return 0, err
	}
	v, err := tensor.Values[int32](t)
	if err != nil {
		return 0, err
	}
	if v[0] < 0 || int(v[0]) >= n {
		return n - 1, nil
	}
	return int(v[0]), nil
}

// mergeKernel is Merge.
type mergeKernel struct{ indexed bool } // a node gets the index of the value

func (k mergeKernel) Compute(c *Context) error {
	for i, v := range c.Inputs {
		if v.Tensor == nil && v.Var == nil && v.Opaque == nil {
			continue
		}
		c.move(0, i)
		if !k.indexed {
			c.Outputs[1] = Value{Dead: true}
			return nil
		}
		t, err := tensor.FromSlice(tensor.Shape{}, []int32{int32(i)})
		c.Outputs[1] = Value{Tensor: t}
		return err
	}
	return status.New(status.Internal, "Merge node ran without a value")
}
