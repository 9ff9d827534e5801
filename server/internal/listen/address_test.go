package listen

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
)

func TestListenAddressOfTheCluster(t *testing.T) {
	names := map[string][]netip.Addr{
		"here":      {netip.MustParseAddr("10.0.0.1")},
		"here6":     {netip.MustParseAddr("2001:db8::1")},
		"both":      {netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1")},
		"debian":    {netip.MustParseAddr("127.0.1.1")},
		"balancer":  {netip.MustParseAddr("10.9.9.9")},
		"localhost": {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	}
	local := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("127.0.0.1")}
	h := ownHost{
		lookup:  func(name string) []netip.Addr { return names[name] },
		isLocal: func(a netip.Addr) bool { return slices.Contains(local, a) },
	}
	for own, want := range map[string][2]string{
		"10.0.0.1:7":           {"10.0.0.1:7", ""},
		"[2001:db8::1]:7":      {"[2001:db8::1]:7", ""},
		"[::ffff:10.0.0.1]:7":  {"[::ffff:10.0.0.1]:7", ""},
		"127.0.0.9:7":          {"127.0.0.9:7", ""},
		"[::1]:7":              {"[::1]:7", ""},
		"0.0.0.0:7":            {"0.0.0.0:7", ""},
		":7":                   {":7", ""},
		"localhost:7":          {"localhost:7", ""},
		"a.LocalHost.:7":       {"a.LocalHost.:7", ""},
		"here:7":               {"10.0.0.1:7", ""},
		"here6:7":              {"[2001:db8::1]:7", ""},
		"10.9.9.9:7":           {":7", "no network interface has this address"},
		"both:7":               {":7", "several addresses"},
		"debian:7":             {":7", "127.0.1.1, which peers cannot use"},
		"balancer:7":           {":7", "10.9.9.9, which no network interface has"},
		"tryst-0.tryst:7":      {":7", "not yet"},
		"localhost.evil.org:7": {":7", "not yet"},
	} {
		address, reason := h.listenAddress(own)
		if address != want[0] || (reason == "") != (want[1] == "") || !strings.Contains(reason, want[1]) {
			t.Errorf("%s: got %s, %q; want %s, %q", own, address, reason, want[0], want[1])
		}
	}
}

// TestNamesAreLookedUpOnce at the start: a resolver may take seconds for each answer. A search for a
// device that comes later looks the name up again, since it may be known by then.
func TestNamesAreLookedUpOnce(t *testing.T) {
	for host, found := range map[string][]netip.Addr{
		"not-yet": nil,
		"one":     {netip.MustParseAddr("192.0.2.77")},
		"both":    {netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")},
	} {
		spec, err := cluster.ParseSpec("worker=" + host + ":7")
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		o := Choose(t.Context(), Options{Listen: host + ":7", InCluster: true, TaskIsSet: true, Cluster: spec, Task: cluster.Task{Job: "worker"}}, func(_ context.Context, name string) []netip.Addr {
			if n++; name != host {
				t.Errorf("%s is looked up", name)
			}
			return found
		})
		first, _ := o.Local(t.Context())
		if n != 1 {
			t.Errorf("%s: %d lookups at the start", host, n)
		}
		if again, _ := o.Local(t.Context()); n != 2 || again != first {
			t.Errorf("%s: %d lookups after a second search, which found %v after %v", host, n, again, first)
		}
	}
}

// TestDialedAddresses: peers dial the address in the cluster, or that of the listener; all of the host
// for a listener on all interfaces.
func TestDialedAddresses(t *testing.T) {
	spec, err := cluster.ParseSpec("worker=forwarded:7")
	if err != nil {
		t.Fatal(err)
	}
	at := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9}
	if got := (&Address{}).Dialed(at); !slices.Equal(got, []string{"127.0.0.1:9"}) {
		t.Errorf("got %q", got)
	}
	all := (&Address{}).Dialed(&net.TCPAddr{IP: net.IPv6unspecified, Port: 9})
	for _, address := range all {
		host, port, err := net.SplitHostPort(address)
		if err != nil || port != strconv.Itoa(9) || net.ParseIP(host).IsUnspecified() {
			t.Errorf("%s of %s: %v", address, fmt.Sprint(all), err)
		}
	}
	if len(all) == 0 || len(all) > maxDialedAddresses {
		t.Errorf("%d addresses", len(all))
	}
	c := Address{o: Options{Cluster: spec, Task: cluster.Task{Job: "worker"}}}
	if got := c.Dialed(at); !slices.Equal(got, []string{"forwarded:7"}) {
		t.Errorf("in a cluster: got %q", got)
	}
}
