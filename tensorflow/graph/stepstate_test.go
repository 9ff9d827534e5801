package graph

import (
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
)

// TestStepsThatWaitAreCounted: what the nodes of a step take while it runs is reserved before it starts, and given back.
func TestStepsThatWaitAreCounted(t *testing.T) {
	s := newFakeSet()
	release, waiting := make(chan struct{}), make(chan struct{}, 1)
	s.ops["Wait"] = fakeOp{def: s.ops["Identity"].def, kernel: asyncKernel(func(c *Context, done func(error)) {
		x := c.Inputs[0].Retain()
		go func() {
			waiting <- struct{}{}
			<-release
			c.Outputs[0] = x
			done(nil)
		}()
	})}
	e, err := NewExecutor(importGraph(t, s, "c = Const() dtype=int32 value=#1"+"\nw = Wait(c) T=int32"), s)
	if err != nil {
		t.Fatal(err)
	}
	least := int64(stateOfWait + stateOfNode)
	pool := tensor.NewPool(tensor.PoolOptions{Limit: 2*least + stateOfIteration})
	ended := make(chan error)
	go func() { ended <- e.Run(t.Context(), &Step{Allocator: pool}) }()
	<-waiting
	if n := pool.Stats().InUse; n < least {
		t.Errorf("%d bytes are counted for a step with a node that waits, want %d at least", n, least)
	}
	if err := e.Run(t.Context(), &Step{Allocator: pool}); status.CodeOf(err) != status.ResourceExhausted || !strings.Contains(err.Error(), "the state of a step of 2 nodes") {
		t.Errorf("one more: %v", err)
	}
	close(release)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := pool.Stats().InUse; n != 0 {
		t.Errorf("%d bytes are counted afterwards", n)
	}
}
