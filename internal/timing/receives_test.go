package timing

import (
	"context"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestReceives times each receive of a published tensor.
func TestReceives(t *testing.T) {
	s, err := server.Start(t.Context(), server.Config{Listen: "127.0.0.1:0"}, server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	x := tensortest.Tensor(t, tensor.Uint8, 1000)
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("t1")); err != nil {
		t.Fatal(err)
	}
	c, err := server.Dial(t.Context(), server.Config{}, s.Addr().String(), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(context.Background())
	took, err := Receives(t.Context(), c, "m", "t1", 20)
	if err != nil {
		t.Fatal(err)
	}
	if len(took) != 20 || took[0] <= 0 || !slices.IsSorted(took) {
		t.Errorf("20 receives took %v", took)
	}
	received := 0
	for _, tr := range c.Transfers() {
		if tr.Bytes == 1000 {
			received++
		}
	}
	if received != 20 {
		t.Errorf("%d receives of the tensor", received)
	}
	for name, want := range map[string]status.Code{"m": status.NotFound, "other": status.NotFound} {
		if _, err := Receives(t.Context(), c, name, "no such tensor", 1); status.CodeOf(err) != want {
			t.Errorf("publication %s without the tensor: %v", name, err)
		}
	}
}
