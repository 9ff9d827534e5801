//go:build rxe && linux

package verbs_test

import (
	"context"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	softroce "github.com/tryst-rdma/tryst/soft-roce"
)

// What is done to the cable between the devices, over which nothing goes but RDMA.

// netdev is the network interface that a device is on.
func (w *world) netdev(device string) netlink.Link {
	w.t.Helper()
	links, err := softroce.Links()
	if err != nil {
		w.t.Fatal(err)
	}
	for _, l := range links {
		if l.Name == device {
			n, err := netlink.LinkByName(l.Netdev)
			if err != nil {
				w.t.Fatal(err)
			}
			return n
		}
	}
	w.t.Fatalf("there is no %s, only %v", device, links)
	return nil
}

// disturb has netem treat what goes out of some devices. What it returns is the
// end of that, and runs at the end of the test unless it has run before.
func (w *world) disturb(how netlink.NetemQdiscAttrs, devices ...string) (mend func()) {
	w.t.Helper()
	var all []netlink.Qdisc
	for _, d := range devices {
		q := netlink.NewNetem(netlink.QdiscAttrs{
			LinkIndex: w.netdev(d).Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}, how)
		if err := netlink.QdiscAdd(q); err != nil {
			w.t.Fatalf("disturb %s: %v", d, err)
		}
		all = append(all, q)
	}
	mend = func() {
		for _, q := range all {
			if err := netlink.QdiscDel(q); err != nil {
				w.t.Errorf("disturb it no more: %v", err)
			}
		}
		all = nil
	}
	w.t.Cleanup(mend)
	return mend
}

// lose loses a part of the packets, in percent, in both directions. All of them is
// a cable that is cut.
func (w *world) lose(percent float32) (mend func()) {
	w.t.Helper()
	return w.disturb(netlink.NetemQdiscAttrs{Loss: percent}, w.devices...)
}

// dropped is how many packets netem has lost of what goes out of a device. (rxe's own
// counters rise on a slow machine without a loss.)
func (w *world) dropped(device string) uint32 {
	w.t.Helper()
	all, err := netlink.QdiscList(w.netdev(device))
	if err != nil {
		w.t.Fatal(err)
	}
	for _, q := range all {
		if _, ok := q.(*netlink.Netem); ok {
			return q.Attrs().Statistics.Queue.Drops
		}
	}
	w.t.Fatalf("%s is not disturbed", device)
	return 0
}

// slow lets so many bytes a second out of a device.
func (w *world) slow(device string, rate uint64) (mend func()) {
	w.t.Helper()
	return w.disturb(netlink.NetemQdiscAttrs{Rate64: rate}, device)
}

// down is `ip link set down` of a device's interface. What it returns is `up`, with
// the addresses that the kernel has taken away meanwhile; it runs at the end of the
// test unless it has run before.
func (w *world) down(device string) (up func()) {
	w.t.Helper()
	n := w.netdev(device)
	addresses, err := netlink.AddrList(n, netlink.FAMILY_ALL)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := netlink.LinkSetDown(n); err != nil {
		w.t.Fatal(err)
	}
	isDown := true
	up = func() {
		if !isDown {
			return
		}
		isDown = false
		if err := netlink.LinkSetUp(n); err != nil {
			w.t.Error(err)
		}
		for _, a := range addresses {
			if a.Scope == unix.RT_SCOPE_UNIVERSE { // the others come by themselves
				a.Flags = 0
				if err := netlink.AddrReplace(n, &a); err != nil {
					w.t.Error(err)
				}
			}
		}
		w.active(device)
	}
	w.t.Cleanup(up)
	return up
}

// replaceAddress takes an address from a device's interface and gives it another one.
// At the end of the test it has the first.
func (w *world) replaceAddress(device, old, now string) {
	w.t.Helper()
	n := w.netdev(device)
	address := func(ip string) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip).To4(), Mask: net.CIDRMask(24, 32)}}
	}
	if err := netlink.AddrDel(n, address(old)); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		_ = netlink.AddrDel(n, address(now)) // it may have gone
		if err := netlink.AddrReplace(n, address(old)); err != nil {
			w.t.Error(err)
		}
	})
	if err := netlink.AddrAdd(n, address(now)); err != nil {
		w.t.Fatal(err)
	}
}

// active waits until a device has its addresses.
func (w *world) active(device string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := softroce.WaitActive(ctx, device); err != nil {
		w.t.Error(err)
	}
}

// removeTime is how long who removes a device waits for us at most.
const removeTime = 10 * time.Second

// remove removes a device, as a process that has it not open, and returns what
// makes it again; that runs at the end of the test unless it has run before.
func (w *world) remove(device string) (add func()) {
	w.t.Helper()
	netdev := w.netdev(device).Attrs().Name
	removed := make(chan error, 1)
	since := time.Now()
	go func() { removed <- softroce.RemoveLink(device) }()
	var err error
	late := false
	select {
	case err = <-removed:
		w.t.Logf("%s was removed in %v", device, time.Since(since).Round(time.Millisecond))
	case <-time.After(removeTime):
		late = true
		for _, p := range w.nodes {
			_ = p.cmd.Process.Kill() // an error when it has ended
		}
		err = <-removed
	}
	if err != nil {
		w.t.Fatal(err)
	}
	gone := true
	add = func() {
		if !gone {
			return
		}
		gone = false
		if err := softroce.AddLink(device, netdev); err != nil {
			w.t.Error(err)
		}
		w.active(device)
	}
	w.t.Cleanup(add)
	if late {
		w.t.Fatalf("%s is not removed within %v: somebody does not let go", device, removeTime)
	}
	return add
}

// cut lets no packet through.
func (w *world) cut() (mend func()) {
	w.t.Helper()
	return w.lose(100)
}

// cutGRPC lets nobody be reached by gRPC until mendGRPC, and breaks what there is.
func (w *world) cutGRPC() (mendGRPC func()) {
	var targets []string
	for _, p := range w.proxies {
		targets = append(targets, p.Target())
		p.SetTarget("")
		<-p.CutAfter(0)
	}
	return func() {
		for i, p := range w.proxies {
			p.SetTarget(targets[i])
		}
	}
}
