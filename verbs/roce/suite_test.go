package roce

import (
	"net/netip"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// loopback returns the device of the loopback interface and the GID index of an
// address. It skips the test if the host has no such address.
func loopback(t testing.TB, p *Provider, addr netip.Addr) verbstest.End {
	t.Helper()
	infos, err := p.Devices()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range infos {
		d, err := p.Open(info.Name)
		if err != nil {
			t.Fatal(err)
		}
		table, err := d.GIDs(onlyPort)
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		for _, e := range table {
			if e.GID == verbs.GIDFromAddr(addr) {
				return verbstest.End{Provider: p, Device: info.Name, Port: onlyPort, GIDIndex: uint8(e.Index)}
			}
		}
	}
	t.Skipf("no interface has the address %v", addr)
	return verbstest.End{}
}

var unsupported = map[verbstest.Feature]string{
	verbstest.PortEvents: "an interface of the host is taken down by root only; TestMemorySuite does it in memory",
	verbstest.MaxRegion:  "a region may be as large as memory",
}

func TestSuiteIPv4(t *testing.T) { suite(t, netip.MustParseAddr("127.0.0.1"), Options{}) }
func TestSuiteIPv6(t *testing.T) { suite(t, netip.IPv6Loopback(), Options{}) }

// TestSuiteNoOffload: as on a kernel without offloads.
func TestSuiteNoOffload(t *testing.T) {
	suite(t, netip.MustParseAddr("127.0.0.1"), Options{NoOffload: true})
}

func suite(t *testing.T, addr netip.Addr, o Options) {
	verbstest.Run(t, verbstest.Env{
		Ends: func(t testing.TB) (a, b verbstest.End) {
			p := New(o)
			e := loopback(t, p, addr)
			return e, e
		},
		Unsupported: unsupported,
	})
}
