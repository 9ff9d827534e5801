//go:build rxe

package softroce

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/tryst-rdma/tryst/status"
)

// deadline is for what takes milliseconds, on an emulated processor.
const deadline = time.Minute

// The two devices that the tier promises are there, active, and at the largest MTU.
func TestRxeDefaultPair(t *testing.T) {
	links, err := Links()
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range DefaultPair() {
		if !slices.Contains(links, end.Link) {
			t.Errorf("no device %v; there are %v", end.Link, links)
		}
		if name := strings.Split(os.Getenv("TRYST_TEST_DEVICES"), ",")[i]; name != end.Name {
			t.Errorf("TRYST_TEST_DEVICES names %s, want %s", name, end.Name)
		}
		if err := WaitActive(within(t), end.Name); err != nil {
			t.Error(err)
		}
		netdev, err := net.InterfaceByName(end.Netdev)
		if err != nil {
			t.Fatal(err)
		}
		if netdev.MTU != pairMTU {
			t.Errorf("%s has MTU %d, want %d", end.Netdev, netdev.MTU, pairMTU)
		}
	}
}

// Who takes an interface of the pair down and up again leaves it as it was: the next
// test needs both addresses.
func TestRxePairKeepsItsAddresses(t *testing.T) {
	end := DefaultPair()[0]
	link, err := netlink.LinkByName(end.Netdev)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netlink.LinkSetDown(link), netlink.LinkSetUp(link)); err != nil {
		t.Fatal(err)
	}
	if err := WaitActive(within(t), end.Name); err != nil {
		t.Error(err)
	}
	addrs, err := netlink.AddrList(link, netlink.FAMILY_ALL)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []netip.Prefix{end.IPv4, end.IPv6} {
		if !slices.ContainsFunc(addrs, func(a netlink.Addr) bool { return a.IP.Equal(want.Addr().AsSlice()) }) {
			t.Errorf("%s has lost %v; it has %v", end.Netdev, want, addrs)
		}
	}
}

// The clock is the processor's counter: a device, emulated, takes 10 µs to read.
func TestRxeClockIsNoDevice(t *testing.T) {
	clock, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		t.Fatal(err)
	}
	if name := strings.TrimSpace(string(clock)); name == "hpet" || name == "acpi_pm" {
		t.Errorf("the clock is %s", name)
	}
}

func TestRxeAddAndRemoveALink(t *testing.T) {
	dummy(t, "d0", "198.51.100.1/24")
	if err := AddLink("rxe7", "d0"); err != nil {
		t.Fatal(err)
	}
	if err := WaitActive(within(t), "rxe7"); err != nil {
		t.Error(err)
	}
	if links, err := Links(); err != nil || !slices.Contains(links, Link{"rxe7", "d0"}) {
		t.Errorf("links %v, error %v: rxe7 is not among them", links, err)
	}
	if err := RemoveLink("rxe7"); err != nil {
		t.Fatal(err)
	}
	if links, err := Links(); err != nil || slices.Contains(links, Link{"rxe7", "d0"}) {
		t.Errorf("links %v, error %v: rxe7 is still among them", links, err)
	}
}

func TestRxeKernelsAnswersInWords(t *testing.T) {
	dummy(t, "d1", "198.51.100.2/24")
	pair := DefaultPair()
	for _, tt := range []struct {
		what string
		err  error
		code status.Code
		want string
	}{
		{"no interface", AddLink("rxe8", "nonesuch"), status.NotFound, "there is no network interface nonesuch"},
		{"the name is taken", AddLink(pair[0].Name, "d1"), status.AlreadyExists, "the name is taken"},
		{"the interface has one", AddLink("rxe8", pair[0].Netdev), status.AlreadyExists, "the interface has a Soft-RoCE device already"},
		{"no such device", RemoveLink("rxe8"), status.NotFound, "there are: rxe0, rxe1"},
		{"the pair is there", SetupPair(t.Context(), pair), status.AlreadyExists, "one of them exists already"},
	} {
		if status.CodeOf(tt.err) != tt.code || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %v with %q", tt.what, tt.err, tt.code, tt.want)
		}
	}
	// And nothing of the pair was taken away by the attempt to make it again.
	for _, end := range pair {
		if err := WaitActive(within(t), end.Name); err != nil {
			t.Error(err)
		}
	}
}

// A process without the right is told which it lacks: this one again, started without it.
func TestRxeWithoutTheRight(t *testing.T) {
	const asked = "TRYST_RXE_ADD_LINK"
	if os.Getenv(asked) != "" {
		t.Fatal(AddLink("rxe9", "d2"))
	}
	dummy(t, "d2", "198.51.100.3/24")
	again := exec.CommandContext(within(t), "setpriv", "--bounding-set=-net_admin", os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(again.Environ(), asked+"=1")
	out, err := again.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "run as root, or with CAP_NET_ADMIN") {
		t.Errorf("error %v, output %s", err, out)
	}
}

// A second pair, with a server and a client that write through it, then none of it is left.
func TestRxePairCarriesWrites(t *testing.T) {
	pair := Pair{
		{Link{"rxe2", "v2"}, netip.MustParsePrefix("198.51.100.129/28"), netip.MustParsePrefix("2001:db8:1::1/64")},
		{Link{"rxe3", "v3"}, netip.MustParsePrefix("198.51.100.130/28"), netip.MustParsePrefix("2001:db8:1::2/64")},
	}
	if err := SetupPair(within(t), pair); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := RemovePair(pair); err != nil {
			t.Error(err)
		}
		links, err := Links()
		if err != nil || slices.ContainsFunc(links, func(l Link) bool { return l.Netdev == "v2" || l.Netdev == "v3" }) {
			t.Errorf("links %v, error %v: the pair is still there", links, err)
		}
		for _, name := range []string{"v2", "v3"} {
			if _, err := netlink.LinkByName(name); !errors.As(err, new(netlink.LinkNotFoundError)) {
				t.Errorf("interface %s is still there (%v)", name, err)
			}
		}
	}()
	sent := packets(t, "v2")
	const size, times = "65536", "20"
	args := []string{"-x", "1", "-s", size, "-n", times, "-F"}
	server := exec.CommandContext(within(t), "ib_write_bw", append([]string{"-d", "rxe3"}, args...)...)
	var said strings.Builder
	server.Stdout, server.Stderr = &said, &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	var err error
	for ctx := within(t); ctx.Err() == nil; { // Until the server listens.
		out, err = exec.CommandContext(ctx, "ib_write_bw", append(append([]string{"-d", "rxe2"}, args...), pair[1].IPv4.Addr().String())...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Couldn't connect") {
			break
		}
	}
	if err != nil {
		t.Errorf("client: %v\n%s", err, out)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v\n%s", err, &said)
	}
	// The frames went over the cable: 20 writes of 16 packets at the MTU of 4096.
	if n := packets(t, "v2") - sent; n < 20*16 {
		t.Errorf("v2 has sent %d packets, want at least %d", n, 20*16)
	}
}

// A pair whose devices cannot be made leaves no interface behind.
func TestRxeFailedPairIsUndone(t *testing.T) {
	pair := Pair{
		{Link{"rxe2", "v2"}, netip.MustParsePrefix("198.51.100.129/28"), netip.MustParsePrefix("2001:db8:1::1/64")},
		{Link{"rxe0", "v3"}, netip.MustParsePrefix("198.51.100.130/28"), netip.MustParsePrefix("2001:db8:1::2/64")},
	}
	if err := SetupPair(within(t), pair); status.CodeOf(err) != status.AlreadyExists {
		t.Errorf("error %v, want that rxe0 is taken", err)
	}
	if _, err := netlink.LinkByName("v2"); !errors.As(err, new(netlink.LinkNotFoundError)) {
		t.Errorf("interface v2 is still there (%v)", err)
	}
	if links, err := Links(); err != nil || !slices.Equal(links, []Link{{"rxe0", "v0"}, {"rxe1", "v1"}}) {
		t.Errorf("links %v, error %v, want the two of before", links, err)
	}
}

// dummy makes a network interface with an address, for as long as the test runs.
func dummy(t *testing.T, name, address string) {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	link := &netlink.Dummy{LinkAttrs: attrs}
	if err := netlink.LinkAdd(link); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(link); err != nil {
			t.Error(err)
		}
	})
	addr, err := netlink.ParseAddr(address)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.AddrAdd(link, addr); err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
}

// packets is how many packets the interface has sent.
func packets(t *testing.T, netdev string) uint64 {
	t.Helper()
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Statistics.TxPackets
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}
