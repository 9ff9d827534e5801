package discovery

import (
	"errors"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// This host, whatever it has: what rdmamap and netlink say fits to sysfs, and
// without RDMA that is said and nothing fails.
func TestThisHost(t *testing.T) {
	s, err := Host()
	if err != nil {
		t.Fatal(err)
	}
	inv, err := s.Read()
	if err != nil {
		t.Fatal(err)
	}
	if len(inv.Netdevs) == 0 {
		t.Error("no network device, not even lo")
	}
	fromMap, err := s.Map.Devices()
	if err != nil || len(fromMap) != len(inv.Devices) {
		t.Errorf("rdmamap has devices %v, %v; sysfs has %d", fromMap, err, len(inv.Devices))
	}
	k := s.Kernel(inv)
	if len(k.Problems) != 0 {
		t.Errorf("problems %v", k.Problems)
	}
	_, err = Resources("there is no such device")
	if !errors.Is(err, verbs.ErrNotFound) && (k.Core || !errors.Is(err, verbs.ErrUnavailable)) {
		t.Errorf("resources of a device that there is not: %v (the kernel has RDMA: %v)", err, k.Core)
	}
}
