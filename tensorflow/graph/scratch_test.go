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

// TestScratchOfAKernelThatWaitsEndsWithIt: not with ComputeAsync, but when done is called.
func TestScratchOfAKernelThatWaitsEndsWithIt(t *testing.T) {
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 4 << 20})
	s := newFakeSet()
	s.ops["Wait"] = fakeOp{def: s.ops["Identity"].def, kernel: asyncKernel(func(c *Context, done func(error)) {
		go func() {
			done(c.Scratch(1 << 20))
		}()
	})}
	for range 5 {
		e, err := NewExecutor(importGraph(t, s, "w = Wait(c) T=int32\nc = Const() dtype=int32 value=#1"), s)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Run(t.Context(), &Step{Allocator: pool}); err == nil || pool.Stats().InUse != 0 {
			t.Fatalf("%v, and %d bytes are counted afterwards", err, pool.Stats().InUse)
		}
	}
}
