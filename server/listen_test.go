package server

import (
	"log/slog"
	"net"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/status"
)

// inCluster returns settings without listen, as flags or a program give them, for task 0 at an address.
func inCluster(t *testing.T, own string, others ...string) Config {
	t.Helper()
	return Config{Cluster: map[string][]string{"worker": append([]string{own}, others...)}, Task: "/job:worker/task:0"}
}

// TestServerListensAtItsAddressOfTheCluster: the address is the one that peers dial.
func TestServerListensAtItsAddressOfTheCluster(t *testing.T) {
	own := transporttest.FreeAddresses(t, 1)[0]
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
	_, port, _ := net.SplitHostPort(transporttest.FreeAddresses(t, 1)[0])
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
	_, port, _ := net.SplitHostPort(transporttest.FreeAddresses(t, 1)[0])
	c := Config{Cluster: map[string][]string{"worker": {"192.0.2.77:" + port}}}
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
