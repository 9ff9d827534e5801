package tryst_test

import (
	"testing"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestInterruptedReportsAnOutage: why the pull waits and for how long at most, and that it goes on.
func TestInterruptedReportsAnOutage(t *testing.T) {
	ctx := t.Context()
	address := freeAddresses(1)[0]
	c, err := tryst.Dial(ctx, address, tryst.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	var s *tryst.Server
	defer func() {
		if s != nil {
			s.Close(ctx)
		}
	}()
	var reports []tryst.Interruption
	report := func(i tryst.Interruption) {
		reports = append(reports, i)
		if i.Err == nil {
			return
		}
		if s, err = tryst.Serve(ctx, tryst.Config{Listen: address}); err != nil {
			t.Error(err)
			return
		}
		x, err := tensor.Allocate(tensortest.NewAllocator(t), tensor.Uint8, tensor.Vector(100))
		if err != nil {
			t.Error(err)
			return
		}
		defer x.Release()
		if _, err := s.PublishTensors(t.Context(), "m", x.Named("x")); err != nil {
			t.Error(err)
		}
	}
	n := 0
	for x, err := range c.Pull(ctx, "m", tryst.PullRetry(time.Minute), tryst.OnInterruption(report)) {
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
		n++
	}
	if n != 1 || len(reports) != 2 || reports[0].Err == nil || reports[0].Retry != time.Minute || reports[1].Err != nil || reports[1].Lasted <= 0 {
		t.Errorf("%d tensors, reports %+v", n, reports)
	}
}
