//go:build rxe && linux

// Package cabletest creates the cable between the kernel's device and ours, and
// captures what travels over it.
package cabletest

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	softroce "github.com/tryst-rdma/tryst/internal/softroce"
)

// testTimeout limits waits that must not hang, on an emulated processor.
const testTimeout = time.Minute

// The cable. Its MTU fits packets with 4096 bytes of payload.
const (
	KernelDevice = "rxe2"
	KernelNetdev = "r0"
	OurNetdev    = "r1"
	mtu          = 4200
)

// KernelAddrs returns the addresses of the kernel's end, IPv4 and IPv6.
func KernelAddrs() [2]netip.Prefix {
	return [2]netip.Prefix{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8:1::1/64")}
}

// OurAddrs returns the addresses of our end.
func OurAddrs() [2]netip.Prefix {
	return [2]netip.Prefix{netip.MustParsePrefix("198.51.100.2/24"), netip.MustParsePrefix("2001:db8:1::2/64")}
}

// Place is a network namespace in which functions can run.
type Place interface {
	// Do runs f in the namespace. f must not end the test's goroutine.
	Do(f func())
}

// Here is the namespace of the process.
type Here struct{}

// Do implements Place.
func (Here) Do(f func()) { f() }

// Namespace is another network namespace, with a thread in it.
type Namespace struct{ work chan func() }

// NewNamespace creates a namespace with its loopback interface up. The namespace and
// its interfaces are removed when the test ends.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	n := enter(t, func() error { return unix.Unshare(unix.CLONE_NEWNET) })
	n.Do(func() { up(t, "lo") })
	return n
}

// Enter puts a thread into a namespace, given as the number of an open file.
func Enter(t testing.TB, file int) *Namespace {
	t.Helper()
	return enter(t, func() error { return unix.Setns(file, unix.CLONE_NEWNET) })
}

func enter(t testing.TB, change func() error) *Namespace {
	t.Helper()
	n := &Namespace{work: make(chan func())}
	begun, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		begun <- change()
		for f := range n.work {
			f()
		}
	}()
	t.Cleanup(func() { close(n.work); <-ended })
	if err := <-begun; err != nil {
		t.Fatalf("change the network namespace: %v", err)
	}
	return n
}

// Do implements Place.
func (n *Namespace) Do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// New creates the cable between two namespaces, with the kernel's device on its end in
// the first network namespace of the machine. It is removed when the test ends.
func New(t testing.TB, kernel, ours Place) {
	t.Helper()
	var err error
	do := func(p Place, f func() error) {
		t.Helper()
		if p.Do(func() { err = f() }); err != nil {
			t.Fatal(err)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = KernelNetdev, mtu
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = OurNetdev, mtu
	do(kernel, func() error { return netlink.LinkAdd(veth) })
	t.Cleanup(func() {
		if kernel.Do(func() { err = netlink.LinkDel(veth) }); err != nil {
			t.Error(err)
		}
	})
	var file *os.File
	do(ours, func() error {
		file, err = os.Open("/proc/thread-self/ns/net")
		return err
	})
	defer file.Close()
	do(kernel, func() error {
		link, err := netlink.LinkByName(OurNetdev)
		if err != nil {
			return err
		}
		return netlink.LinkSetNsFd(link, int(file.Fd()))
	})
	kernelAddrs, ourAddrs := KernelAddrs(), OurAddrs()
	do(kernel, func() error { up(t, KernelNetdev, kernelAddrs[:]...); return nil })
	do(ours, func() error { up(t, OurNetdev, ourAddrs[:]...); return nil })
	Introduce(t, kernel, ours)

	do(kernel, func() error { return softroce.AddDevice(KernelDevice, KernelNetdev) })
	t.Cleanup(func() {
		if kernel.Do(func() { err = softroce.RemoveDevice(KernelDevice) }); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	do(kernel, func() error { return softroce.WaitActive(ctx, KernelDevice) })
}

// Introduce waits until both ends are up, and adds to each a neighbour entry for the other.
func Introduce(t testing.TB, kernel, ours Place) {
	t.Helper()
	kernelAddrs, ourAddrs := KernelAddrs(), OurAddrs()
	var theirs, our net.HardwareAddr
	kernel.Do(func() { theirs = Running(t, KernelNetdev) })
	ours.Do(func() {
		our = Running(t, OurNetdev)
		Neighbours(t, OurNetdev, theirs, kernelAddrs[:]...)
	})
	kernel.Do(func() { Neighbours(t, KernelNetdev, our, ourAddrs[:]...) })
}

// up assigns addresses to an interface of the current namespace and sets it up.
// There are no other hosts on the cable, so duplicate address detection is off.
func up(t testing.TB, netdev string, addrs ...netip.Prefix) {
	t.Helper()
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		t.Error(err)
		return
	}
	for _, p := range addrs {
		a, err := netlink.ParseAddr(p.String())
		if err != nil {
			t.Error(err)
			return
		}
		if p.Addr().Is6() {
			a.Flags |= unix.IFA_F_NODAD
			// Keep IPv6 addresses when the interface is taken down, as IPv4 does.
			if err := os.WriteFile("/proc/sys/net/ipv6/conf/"+netdev+"/keep_addr_on_down", []byte("1"), 0); err != nil {
				t.Error(err)
			}
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			t.Errorf("add address %s to %s: %v", p, netdev, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Errorf("set %s up: %v", netdev, err)
	}
}

// Running waits until an interface of the current namespace carries packets, and
// returns its hardware address.
func Running(t testing.TB, netdev string) net.HardwareAddr {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(testTimeout)
	for {
		link, err := netlink.LinkByName(netdev)
		if err != nil {
			t.Error(err)
			return nil
		}
		if link.Attrs().OperState == netlink.OperUp {
			return link.Attrs().HardwareAddr
		}
		select {
		case <-tick.C:
		case <-late:
			t.Errorf("%s does not come up", netdev)
			return nil
		}
	}
}

// Neighbours adds static neighbour entries to an interface of the current namespace.
// rxe gives the kernel only one second to resolve an address, which is too short if the
// first query is lost.
func Neighbours(t testing.TB, netdev string, where net.HardwareAddr, addrs ...netip.Prefix) {
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		t.Error(err)
		return
	}
	for _, p := range addrs {
		err := netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, IP: p.Addr().AsSlice(), HardwareAddr: where, State: netlink.NUD_PERMANENT,
		})
		if err != nil {
			t.Errorf("add neighbour %s to %s: %v", p.Addr(), netdev, err)
		}
	}
}

// Lose drops a percentage of the packets that an interface of a namespace sends, until restore.
func Lose(t testing.TB, where Place, netdev string, percent float32) (restore func()) {
	t.Helper()
	var q *netlink.Netem
	var err error
	where.Do(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName(netdev); err != nil {
			return
		}
		q = netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			netlink.NetemQdiscAttrs{Loss: percent})
		err = netlink.QdiscAdd(q)
	})
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if where.Do(func() { err = netlink.QdiscDel(q) }); err != nil {
			t.Error(err)
		}
	}
}

// Switch takes an interface of a namespace up or down.
func Switch(t testing.TB, where Place, netdev string, on bool) {
	t.Helper()
	var err error
	where.Do(func() {
		var link netlink.Link
		if link, err = netlink.LinkByName(netdev); err != nil {
			return
		}
		if on {
			err = netlink.LinkSetUp(link)
		} else {
			err = netlink.LinkSetDown(link)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

// Segment makes the kernel split super-packets before they leave an interface of the
// current namespace, so that a capture contains the packets.
func Segment(t testing.TB, netdev string) {
	t.Helper()
	link, err := netlink.LinkByName(netdev)
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetGSOMaxSegs(link, 1); err != nil {
		t.Fatal(err)
	}
}

// NoChecksums turns off checksum offload of an interface of a namespace, and all that
// needs it (ethtool -K tx off).
func NoChecksums(t testing.TB, where Place, netdev string) {
	t.Helper()
	var err error
	where.Do(func() {
		var family *netlink.GenlFamily
		if family, err = netlink.GenlFamilyGet("ethtool"); err != nil {
			return
		}
		request := nl.NewNetlinkRequest(int(family.ID), unix.NLM_F_ACK)
		request.AddData(&nl.Genlmsg{Command: unix.ETHTOOL_MSG_FEATURES_SET, Version: unix.ETHTOOL_GENL_VERSION})
		header := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_HEADER|unix.NLA_F_NESTED, nil)
		header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_NAME, nl.ZeroTerminated(netdev))
		request.AddData(header)
		wanted := nl.NewRtAttr(unix.ETHTOOL_A_FEATURES_WANTED|unix.NLA_F_NESTED, nil)
		bit := wanted.AddRtAttr(unix.ETHTOOL_A_BITSET_BITS|unix.NLA_F_NESTED, nil).
			AddRtAttr(unix.ETHTOOL_A_BITSET_BITS_BIT|unix.NLA_F_NESTED, nil)
		bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated("tx-checksum-ip-generic")) // without a value: off
		request.AddData(wanted)
		_, err = request.Execute(unix.NETLINK_GENERIC, 0)
	})
	if err != nil {
		t.Fatalf("turn the checksums of %s off: %v", netdev, err)
	}
}
