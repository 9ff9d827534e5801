package ops

import (
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/graph"
)

// countingAllocator counts the buffers that are not released.
type countingAllocator struct{ live int }

func (a *countingAllocator) Allocate(size int) (*tensor.Buffer, error) {
	a.live++
	return tensor.NewBuffer(make([]byte, size), func() { a.live-- }), nil
}

// TestCopiesOfVariablesAreReleasedAfterAPanic: someone else reads the variable, so the kernel writes a copy.
func TestCopiesOfVariablesAreReleasedAfterAPanic(t *testing.T) {
	b := newBench(t)
	v := b.variable("w", vec[float32](1, 2))
	snapshot := v.Var.Snapshot()
	defer snapshot.Release()
	a := &countingAllocator{}
	b.step.Allocator = a
	c := &graph.Context{Ctx: t.Context(), Step: b.step, Inputs: []graph.Value{v}}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_ = writeVariables(c, []int{0}, func([]*tensor.Tensor) error { return nil }, func(list []*tensor.Tensor) error {
			if a.live != 1 {
				t.Errorf("%d copies are written, want 1", a.live)
			}
			list[len(list)] = nil // beyond the end
			return nil
		})
	}()
	if a.live != 0 {
		t.Errorf("%d copies are left", a.live)
	}
	b.want(b.read(v), "float[2]: 1 2")
}
