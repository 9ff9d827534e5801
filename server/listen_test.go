package server

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
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

// inCluster returns settings without listen, as flags or a program give them, for task 0 at an address.
func inCluster(t *testing.T, own string, others ...string) config.Config {
	t.Helper()
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": append([]string{own}, others...)})
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config{Client: config.Client{Cluster: spec}, Task: cluster.Task{Job: "worker"}}
	c.FillDefaults()
	return c
}

// TestServerListensAtItsAddressOfTheCluster: the address is the one that peers dial.
func TestServerListensAtItsAddressOfTheCluster(t *testing.T) {
	own := freeAddresses(t, 1)[0]
	s := start(t, inCluster(t, own, "127.0.0.1:1"), Options{})
	if got := s.Addr().String(); got != own {
		t.Errorf("listens at %s, want %s", got, own)
	}
	_, err := Start(t.Context(), inCluster(t, own), Options{})
	wantError(t, err, status.Unavailable, "listen", "this task in the cluster", own, "in use")
}

// TestServerWhoseAddressIsElsewhereListensOnAllInterfaces has the address of a host that forwards
// the port.
func TestServerWhoseAddressIsElsewhereListensOnAllInterfaces(t *testing.T) {
	var log syncBuffer
	_, port, _ := net.SplitHostPort(freeAddresses(t, 1)[0])
	s := start(t, inCluster(t, "192.0.2.77:"+port), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if at, ok := s.Addr().(*net.TCPAddr); !ok || !at.IP.IsUnspecified() || !strings.HasSuffix(at.String(), ":"+port) {
		t.Errorf("listens at %v, want port %s of all interfaces", s.Addr(), port)
	}
	if want := `cluster=192.0.2.77:` + port; !strings.Contains(log.String(), want) || !strings.Contains(log.String(), "no network interface has this address") {
		t.Errorf("the log lacks %s and the reason:\n%s", want, log.String())
	}
}

// TestClusterWithoutATaskOpensNoPort: a cluster may be given only to name peers.
func TestClusterWithoutATaskOpensNoPort(t *testing.T) {
	var log syncBuffer
	_, port, _ := net.SplitHostPort(freeAddresses(t, 1)[0])
	spec, err := cluster.SpecFromLists(map[string][]string{"worker": {"192.0.2.77:" + port}})
	if err != nil {
		t.Fatal(err)
	}
	c := config.Config{Client: config.Client{Cluster: spec}}
	c.FillDefaults()
	s := start(t, c, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if want := "127.0.0.1:" + port; s.Addr().String() != want {
		t.Errorf("listens at %v, want %s", s.Addr(), want)
	}
	if got := log.String(); !strings.Contains(got, "level=WARN msg=\"listening on loopback") || !strings.Contains(got, "set task or listen") {
		t.Errorf("the log does not say why:\n%s", got)
	}
}

// TestLocalAddrOfTheCluster: the doctor and verbs see the address that the listener gets.
func TestLocalAddrOfTheCluster(t *testing.T) {
	for own, want := range map[string][2]string{
		"127.0.0.1:7":  {"127.0.0.1", "the server listens there"},
		"192.0.2.77:7": {"invalid IP", ""}, // not an address of this host
	} {
		addr, why := LocalAddr(t.Context(), inCluster(t, own))
		if addr.String() != want[0] || !strings.Contains(why, want[1]) {
			t.Errorf("%s: got %v, %q; want %s, %q", own, addr, why, want[0], want[1])
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
		n := 0
		o := newOwnAddress(t.Context(), inCluster(t, host+":7"), func(_ context.Context, name string) []netip.Addr {
			if n++; name != host {
				t.Errorf("%s is looked up", name)
			}
			return found
		})
		first, _ := o.local(t.Context())
		if n != 1 {
			t.Errorf("%s: %d lookups at the start", host, n)
		}
		if again, _ := o.local(t.Context()); n != 2 || again != first {
			t.Errorf("%s: %d lookups after a second search, which found %v after %v", host, n, again, first)
		}
	}
}
