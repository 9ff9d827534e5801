package graph

import (
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestScratchEndsWithTheKernel: also when it fails or panics.
func TestScratchEndsWithTheKernel(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 4 << 20})
	for _, end := range []func() error{
		func() error { return nil },
		func() error { return status.New(status.Internal, "a kernel fails") },
		func() error { panic("a kernel has a bug") }, //nolint:forbidigo // what the test is about
	} {
		_ = compute(KernelFunc(func(c *Context) error {
			for range 3 {
				if err := c.Scratch(1 << 20); err != nil {
					t.Error(err)
				}
			}
			if err := c.Scratch(2 << 20); status.CodeOf(err) != status.ResourceExhausted {
				t.Errorf("beyond the limit: %v", err)
			}
			return end()
		}), &Context{Step: &Step{Allocator: pool}, Node: new(Node)})
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d bytes are counted afterwards", n)
		}
	}
}
