//go:build rxe && linux && cgo

package roce_test

import (
	"context"
	"net"
	"net/netip"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	softroce "github.com/tryst-rdma/tryst/soft-roce"
)

// patience bounds what must not hang, on an emulated processor.
const patience = time.Minute

// The cable. Its MTU is enough for packets with 4096 bytes of payload.
const (
	kernelDevice = "rxe2"
	kernelNetdev = "r0"
	ourNetdev    = "r1"
	cableMTU     = 4200
)

// kernelAddrs and ourAddrs are those of the two ends, IPv4 and IPv6.
var (
	kernelAddrs = [2]netip.Prefix{netip.MustParsePrefix("198.51.100.1/24"), netip.MustParsePrefix("2001:db8:1::1/64")}
	ourAddrs    = [2]netip.Prefix{netip.MustParsePrefix("198.51.100.2/24"), netip.MustParsePrefix("2001:db8:1::2/64")}
)

// namespace is a network namespace with a thread in it.
type namespace struct{ work chan func() }

// newNamespace makes a namespace, with its loopback up. It ends with the test,
// and what is left of interfaces in it ends, too.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	n := &namespace{work: make(chan func())}
	begun, ended := make(chan error), make(chan struct{})
	go func() {
		defer close(ended)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		err := unix.Unshare(unix.CLONE_NEWNET)
		begun <- err
		for f := range n.work {
			f()
		}
	}()
	if err := <-begun; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { close(n.work); <-ended })
	n.do(func() { up(t, "lo") })
	return n
}

// do runs f on the thread in the namespace. f must not end the test's goroutine.
func (n *namespace) do(f func()) {
	done := make(chan struct{})
	n.work <- func() { defer close(done); f() }
	<-done
}

// newCable makes the cable, with the kernel's device on one end, and returns the
// namespace of the other.
func newCable(t *testing.T) *namespace {
	t.Helper()
	n := newNamespace(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = kernelNetdev, cableMTU
	veth := netlink.NewVeth(attrs)
	veth.PeerName, veth.PeerMTU = ourNetdev, cableMTU
	if err := netlink.LinkAdd(veth); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := netlink.LinkDel(veth); err != nil {
			t.Error(err)
		}
	})
	ours, err := netlink.LinkByName(ourNetdev)
	if err != nil {
		t.Fatal(err)
	}
	var file *os.File
	n.do(func() { file, err = os.Open("/proc/thread-self/ns/net") })
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := netlink.LinkSetNsFd(ours, int(file.Fd())); err != nil {
		t.Fatal(err)
	}
	up(t, kernelNetdev, kernelAddrs[:]...)
	n.do(func() { up(t, ourNetdev, ourAddrs[:]...) })
	theirs := running(t, kernelNetdev)
	n.do(func() { neighbours(t, ourNetdev, theirs, kernelAddrs[:]...) })
	var our net.HardwareAddr
	n.do(func() { our = running(t, ourNetdev) })
	neighbours(t, kernelNetdev, our, ourAddrs[:]...)

	if err := softroce.AddLink(kernelDevice, kernelNetdev); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := softroce.RemoveLink(kernelDevice); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := softroce.WaitActive(ctx, kernelDevice); err != nil {
		t.Fatal(err)
	}
	return n
}

// up gives an interface of the present namespace its addresses and switches it on.
// Nobody else is on the cable, so no address waits for another owner.
func up(t *testing.T, netdev string, addrs ...netip.Prefix) {
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
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			t.Errorf("give %s the address %s: %v", netdev, p, err)
		}
	}
	if err := netlink.LinkSetUp(link); err != nil {
		t.Errorf("switch %s on: %v", netdev, err)
	}
}

// running waits until an interface of the present namespace carries packets, and
// returns its hardware address.
func running(t *testing.T, netdev string) net.HardwareAddr {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	late := time.After(patience)
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

// neighbours tells an interface of the present namespace where addresses are: rxe
// gives the kernel one second to find out, which is missed when the first question
// is lost.
func neighbours(t *testing.T, netdev string, where net.HardwareAddr, addrs ...netip.Prefix) {
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
			t.Errorf("tell %s where %s is: %v", netdev, p.Addr(), err)
		}
	}
}
