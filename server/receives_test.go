package server

import (
	"context"
	"slices"
	"testing"

	"github.com/tryst-rdma/tryst/status"
)

// TestTimeReceives times each receive of a published tensor.
func TestTimeReceives(t *testing.T) {
	s, err := Start(t.Context(), settings(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	publishSome(t, s)
	c := dial(t, Config{}, s.Addr().String())
	took, err := c.TimeReceives(t.Context(), "m", "t1", 20)
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
		if _, err := c.TimeReceives(t.Context(), name, "no such tensor", 1); status.CodeOf(err) != want {
			t.Errorf("publication %s without the tensor: %v", name, err)
		}
	}
}
