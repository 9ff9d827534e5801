package discovery_test

import (
	"errors"
	"testing"

	"github.com/tryst-rdma/tryst/internal/discovery"
)

// Loopback pauses nobody; the kernel says so, or that it knows nothing of that.
func TestLoopbackHasNoPFC(t *testing.T) {
	host, err := discovery.Host()
	if err != nil {
		t.Skipf("there is no host to ask: %v", err)
	}
	if p, err := host.PFC("lo"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("%+v, %v; want that it does not tell", p, err)
	}
	if p, err := host.PFC("no-such-netdev"); err == nil {
		t.Errorf("%+v of a netdev that is not there", p)
	}
}
