package tryst_test

import (
	"testing"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// A pull leaves no memory behind once the caller has released its tensors. The
// allocators fail the test otherwise.
func TestNothingIsLeftOfAPull(t *testing.T) {
	ctx := t.Context()
	s, err := tryst.Serve(ctx, tryst.Config{Listen: "127.0.0.1:0"}, tryst.WithAllocator(tensortest.NewAllocator(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(ctx)
	source := tensortest.NewAllocator(t)
	var all []*tensor.Tensor
	for _, name := range []string{"a", "b", "c"} {
		x, err := tensor.Allocate(source, tensor.Uint8, tensor.Vector(100_000))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, x.Named(name))
	}
	if _, err := s.PublishTensors(ctx, "m", all...); err != nil {
		t.Fatal(err)
	}
	for _, x := range all {
		x.Release()
	}
	c, err := tryst.Dial(ctx, s.Addr().String(), tryst.Config{}, tryst.WithAllocator(tensortest.NewAllocator(t)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	n := 0
	for x, err := range c.Pull(ctx, "m") {
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
		n++
	}
	if n != 3 {
		t.Errorf("%d tensors, want 3", n)
	}
}
