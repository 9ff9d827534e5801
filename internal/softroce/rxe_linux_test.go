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

// deadline limits each operation. They take milliseconds, but longer on an emulated processor.
const deadline = time.Minute

// The two devices that package tier promises exist, are active, and have the largest MTU.
func TestRxeDefaultPair(t *testing.T) {
	links, err := Devices()
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range DefaultPair() {
		if !slices.Contains(links, end.Device) {
			t.Errorf("links %v, want %v among them", links, end.Device)
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

// An interface of the pair keeps both addresses when it is set down and up, since later tests
// need them.
func TestRxePairKeepsAddressesWhenDown(t *testing.T) {
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
			t.Errorf("%s has addresses %v, want %v among them", end.Netdev, addrs, want)
		}
	}
}

// The clock is the processor's counter. Each read of an emulated clock device would take 10 µs.
func TestRxeClockSourceIsTheProcessor(t *testing.T) {
	clock, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		t.Fatal(err)
	}
	if name := strings.TrimSpace(string(clock)); name == "hpet" || name == "acpi_pm" {
		t.Errorf("the clock source is %s, want the processor's counter", name)
	}
}

func TestRxeAddAndRemoveLink(t *testing.T) {
	dummy(t, "d0", "198.51.100.1/24")
	if err := AddDevice("rxe7", "d0"); err != nil {
		t.Fatal(err)
	}
	if err := WaitActive(within(t), "rxe7"); err != nil {
		t.Error(err)
	}
	if links, err := Devices(); err != nil || !slices.Contains(links, Device{"rxe7", "d0"}) {
		t.Errorf("links %v, error %v, want rxe7 among them", links, err)
	}
	if err := RemoveDevice("rxe7"); err != nil {
		t.Fatal(err)
	}
	if links, err := Devices(); err != nil || slices.Contains(links, Device{"rxe7", "d0"}) {
		t.Errorf("links %v, error %v, want rxe7 removed", links, err)
	}
}

func TestRxeKernelErrorsAreExplained(t *testing.T) {
	dummy(t, "d1", "198.51.100.2/24")
	pair := DefaultPair()
	for _, tt := range []struct {
		what string
		err  error
		code status.Code
		want string
	}{
		{"no interface", AddDevice("rxe8", "nonesuch"), status.NotFound, "there is no network interface nonesuch"},
		{"the name is taken", AddDevice(pair[0].Name, "d1"), status.AlreadyExists, "the name is taken"},
		{"the interface has one", AddDevice("rxe8", pair[0].Netdev), status.AlreadyExists, "the interface has a Soft-RoCE device already"},
		{"no such device", RemoveDevice("rxe8"), status.NotFound, "existing devices: rxe0, rxe1"},
		{"the pair exists", SetupPair(t.Context(), pair), status.AlreadyExists, "one of them exists already"},
	} {
		if status.CodeOf(tt.err) != tt.code || !strings.Contains(tt.err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %v with %q", tt.what, tt.err, tt.code, tt.want)
		}
	}
	// The failed SetupPair has removed nothing of the pair.
	for _, end := range pair {
		if err := WaitActive(within(t), end.Name); err != nil {
			t.Error(err)
		}
	}
}

// The error of a process without CAP_NET_ADMIN names the capability. The test runs itself in such
// a process.
func TestRxeMissingCapabilityIsNamed(t *testing.T) {
	const inChild = "TRYST_RXE_ADD_LINK"
	if os.Getenv(inChild) != "" {
		t.Fatal(AddDevice("rxe9", "d2"))
	}
	dummy(t, "d2", "198.51.100.3/24")
	child := exec.CommandContext(within(t), "setpriv", "--bounding-set=-net_admin", os.Args[0], "-test.run=^"+t.Name()+"$")
	child.Env = append(child.Environ(), inChild+"=1")
	out, err := child.CombinedOutput()
	if want := "run as root, or with CAP_NET_ADMIN"; err == nil || !strings.Contains(string(out), want) {
		t.Errorf("error %v, output %s, want a failure with %q", err, out, want)
	}
}

// A second pair carries RDMA writes between a server and a client of perftest. RemovePair then
// removes all of it.
func TestRxePairCarriesWrites(t *testing.T) {
	pair := Pair{
		{Device{"rxe2", "v2"}, netip.MustParsePrefix("198.51.100.129/28"), netip.MustParsePrefix("2001:db8:1::1/64")},
		{Device{"rxe3", "v3"}, netip.MustParsePrefix("198.51.100.130/28"), netip.MustParsePrefix("2001:db8:1::2/64")},
	}
	if err := SetupPair(within(t), pair); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := RemovePair(pair); err != nil {
			t.Error(err)
		}
		links, err := Devices()
		if err != nil || slices.ContainsFunc(links, func(l Device) bool { return l.Netdev == "v2" || l.Netdev == "v3" }) {
			t.Errorf("links %v, error %v, want the pair removed", links, err)
		}
		for _, name := range []string{"v2", "v3"} {
			if _, err := netlink.LinkByName(name); !errors.As(err, new(netlink.LinkNotFoundError)) {
				t.Errorf("interface %s: error %v, want that it was removed", name, err)
			}
		}
	}()
	sent := packets(t, "v2")
	const size, times = "65536", "20"
	args := []string{"-x", "1", "-s", size, "-n", times, "-F"}
	server := exec.CommandContext(within(t), "ib_write_bw", append([]string{"-d", "rxe3"}, args...)...)
	var output strings.Builder
	server.Stdout, server.Stderr = &output, &output
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	var err error
	for ctx := within(t); ctx.Err() == nil; { // until the server listens
		out, err = exec.CommandContext(ctx, "ib_write_bw", append(append([]string{"-d", "rxe2"}, args...), pair[1].IPv4.Addr().String())...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Couldn't connect") {
			break
		}
	}
	if err != nil {
		t.Errorf("client: %v\n%s", err, out)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v\n%s", err, &output)
	}
	// The frames went over the cable: 20 writes of 16 packets each at the MTU of 4096.
	if n := packets(t, "v2") - sent; n < 20*16 {
		t.Errorf("v2 has sent %d packets, want at least %d", n, 20*16)
	}
}

// A SetupPair that cannot add its devices leaves no interface behind.
func TestRxeFailedPairIsUndone(t *testing.T) {
	pair := Pair{
		{Device{"rxe2", "v2"}, netip.MustParsePrefix("198.51.100.129/28"), netip.MustParsePrefix("2001:db8:1::1/64")},
		{Device{"rxe0", "v3"}, netip.MustParsePrefix("198.51.100.130/28"), netip.MustParsePrefix("2001:db8:1::2/64")},
	}
	if err := SetupPair(within(t), pair); status.CodeOf(err) != status.AlreadyExists {
		t.Errorf("error %v, want AlreadyExists for rxe0", err)
	}
	if _, err := netlink.LinkByName("v2"); !errors.As(err, new(netlink.LinkNotFoundError)) {
		t.Errorf("interface v2: error %v, want that it was removed", err)
	}
	if links, err := Devices(); err != nil || !slices.Equal(links, []Device{{"rxe0", "v0"}, {"rxe1", "v1"}}) {
		t.Errorf("links %v, error %v, want rxe0 and rxe1 unchanged", links, err)
	}
}

// dummy adds a network interface with an address, and removes it when the test ends.
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

// packets returns the number of packets that the interface has sent.
func packets(t *testing.T, netdev string) uint64 {
	t.Helper()
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		t.Fatal(err)
	}
	return link.Attrs().Statistics.TxPackets
}

// within returns a context that ends after deadline.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}
