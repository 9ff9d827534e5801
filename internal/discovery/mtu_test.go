package discovery_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

func TestPathMTUOfANetdev(t *testing.T) {
	rxe, nic := &discovery.Device{Driver: "rxe"}, &discovery.Device{Driver: "mlx5_core"}
	for _, tt := range []struct {
		dev    *discovery.Device
		netdev int
		want   verbs.MTU
	}{
		{rxe, 1500, 1024}, {rxe, 9000, 4096}, {rxe, 4176, 4096}, {rxe, 4175, 2048}, {rxe, 2128, 2048}, {rxe, 336, 256}, {rxe, 335, 0}, {rxe, 0, 0},
		{nic, 1500, 1024}, {nic, 4192, 4096}, {nic, 4191, 2048}, {nic, 4200, 4096},
	} {
		if got := discovery.RoCEMTU(tt.netdev, tt.dev.Headers()); got != tt.want {
			t.Errorf("%s on a netdev with MTU %d: %d, want %d", tt.dev.Driver, tt.netdev, got, tt.want)
		}
		hint := discovery.MTUHint("eth0", tt.netdev, tt.dev.Headers())
		if (hint == "") != (tt.want == verbs.MTU4096) {
			t.Errorf("%s on a netdev with MTU %d: hint %q", tt.dev.Driver, tt.netdev, hint)
		}
	}
	if hint := discovery.MTUHint("eth0", 1500, rxe.Headers()); !strings.Contains(hint, "1024") || !strings.Contains(hint, "4176") {
		t.Errorf("%q; want what it is and what would be needed", hint)
	}
}

// V24: an MTU equal to the active one is taken; TensorFlow's test was strict.
func TestPathMTUMayEqualTheActiveOne(t *testing.T) {
	for _, tt := range []struct{ asked, active, want verbs.MTU }{
		{4096, 4096, 4096}, {1024, 1024, 1024}, {256, 4096, 256}, {0, 2048, 2048}, {0, 0, 0}, {4096, 0, 4096},
	} {
		if got, err := discovery.PathMTU(tt.asked, tt.active); err != nil || got != tt.want {
			t.Errorf("asked %d of %d: %d, %v; want %d", tt.asked, tt.active, got, err, tt.want)
		}
	}
	for _, tt := range []struct {
		asked, active verbs.MTU
		words         string
	}{
		{2048, 1024, "the port's active MTU is 1024"},
		{1500, 4096, "there are 256, 512, 1024, 2048 and 4096"},
		{-1, 0, "there are 256"},
	} {
		if got, err := discovery.PathMTU(tt.asked, tt.active); !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("asked %d of %d: %d, %v; want an error with %q", tt.asked, tt.active, got, err, tt.words)
		}
	}
}
