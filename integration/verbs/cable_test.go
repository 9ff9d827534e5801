//go:build rxe && linux

package verbs_test

import (
	"context"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	softroce "github.com/tryst-rdma/tryst/internal/softroce"
)

// Faults of the cable between the devices. Only RDMA uses it.

// netdev returns the network interface of a device.
func (bed *testbed) netdev(device string) netlink.Link {
	bed.t.Helper()
	all, err := softroce.Devices()
	if err != nil {
		bed.t.Fatal(err)
	}
	for _, l := range all {
		if l.Name == device {
			n, err := netlink.LinkByName(l.Netdev)
			if err != nil {
				bed.t.Fatal(err)
			}
			return n
		}
	}
	bed.t.Fatalf("devices %v, want %s among them", all, device)
	return nil
}

// disturb adds netem to what some devices send. restore removes it; it also runs at the end of the
// test.
func (bed *testbed) disturb(attrs netlink.NetemQdiscAttrs, devices ...string) (restore func()) {
	bed.t.Helper()
	var all []netlink.Qdisc
	for _, d := range devices {
		q := netlink.NewNetem(netlink.QdiscAttrs{
			LinkIndex: bed.netdev(d).Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT,
		}, attrs)
		if err := netlink.QdiscAdd(q); err != nil {
			bed.t.Fatalf("add netem to %s: %v", d, err)
		}
		all = append(all, q)
	}
	restore = func() {
		for _, q := range all {
			if err := netlink.QdiscDel(q); err != nil {
				bed.t.Errorf("remove netem: %v", err)
			}
		}
		all = nil
	}
	bed.t.Cleanup(restore)
	return restore
}

// lose drops a percentage of the packets in both directions.
func (bed *testbed) lose(percent float32) (restore func()) {
	bed.t.Helper()
	return bed.disturb(netlink.NetemQdiscAttrs{Loss: percent}, bed.devices...)
}

// dropped returns the number of packets of a device that netem has dropped. (On a slow machine
// rxe's own counters also rise without a loss.)
func (bed *testbed) dropped(device string) uint32 {
	bed.t.Helper()
	all, err := netlink.QdiscList(bed.netdev(device))
	if err != nil {
		bed.t.Fatal(err)
	}
	for _, q := range all {
		if _, ok := q.(*netlink.Netem); ok {
			return q.Attrs().Statistics.Queue.Drops
		}
	}
	bed.t.Fatalf("%s has no netem", device)
	return 0
}

// slow limits what a device sends to rate bytes per second.
func (bed *testbed) slow(device string, rate uint64) (restore func()) {
	bed.t.Helper()
	return bed.disturb(netlink.NetemQdiscAttrs{Rate64: rate}, device)
}

// down sets the interface of a device down. up sets it up and adds the addresses that the kernel
// has removed; it also runs at the end of the test.
func (bed *testbed) down(device string) (up func()) {
	bed.t.Helper()
	n := bed.netdev(device)
	addresses, err := netlink.AddrList(n, netlink.FAMILY_ALL)
	if err != nil {
		bed.t.Fatal(err)
	}
	if err := netlink.LinkSetDown(n); err != nil {
		bed.t.Fatal(err)
	}
	isDown := true
	up = func() {
		if !isDown {
			return
		}
		isDown = false
		if err := netlink.LinkSetUp(n); err != nil {
			bed.t.Error(err)
		}
		for _, a := range addresses {
			if a.Scope == unix.RT_SCOPE_UNIVERSE { // the kernel adds the others
				a.Flags = 0
				if err := netlink.AddrReplace(n, &a); err != nil {
					bed.t.Error(err)
				}
			}
		}
		bed.active(device)
	}
	bed.t.Cleanup(up)
	return up
}

// replaceAddress replaces an address of a device's interface. The end of the test restores it.
func (bed *testbed) replaceAddress(device, from, to string) {
	bed.t.Helper()
	n := bed.netdev(device)
	address := func(ip string) *netlink.Addr {
		return &netlink.Addr{IPNet: &net.IPNet{IP: net.ParseIP(ip).To4(), Mask: net.CIDRMask(24, 32)}}
	}
	if err := netlink.AddrDel(n, address(from)); err != nil {
		bed.t.Fatal(err)
	}
	bed.t.Cleanup(func() {
		_ = netlink.AddrDel(n, address(to)) // an error if the test has replaced it
		if err := netlink.AddrReplace(n, address(from)); err != nil {
			bed.t.Error(err)
		}
	})
	if err := netlink.AddrAdd(n, address(to)); err != nil {
		bed.t.Fatal(err)
	}
}

// active waits until a device is active and has its addresses.
func (bed *testbed) active(device string) {
	bed.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := softroce.WaitActive(ctx, device); err != nil {
		bed.t.Error(err)
	}
}

// removeTime limits how long the removal of a device may wait for the processes that have it open.
const removeTime = 10 * time.Second

// remove removes a device, which this process does not have open. add adds it again; it also runs
// at the end of the test.
func (bed *testbed) remove(device string) (add func()) {
	bed.t.Helper()
	netdev := bed.netdev(device).Attrs().Name
	removed := make(chan error, 1)
	since := time.Now()
	go func() { removed <- softroce.RemoveDevice(device) }()
	var err error
	late := false
	select {
	case err = <-removed:
		bed.t.Logf("%s was removed in %v", device, time.Since(since).Round(time.Millisecond))
	case <-time.After(removeTime):
		late = true
		for _, p := range bed.nodes {
			_ = p.cmd.Process.Kill() // an error if it has ended
		}
		err = <-removed
	}
	if err != nil {
		bed.t.Fatal(err)
	}
	gone := true
	add = func() {
		if !gone {
			return
		}
		gone = false
		if err := softroce.AddDevice(device, netdev); err != nil {
			bed.t.Error(err)
		}
		bed.active(device)
	}
	bed.t.Cleanup(add)
	if late {
		bed.t.Fatalf("%s was not removed within %v: a process has not closed it", device, removeTime)
	}
	return add
}

// cut drops all packets.
func (bed *testbed) cut() (restore func()) {
	bed.t.Helper()
	return bed.lose(100)
}

// cutGRPC breaks all gRPC connections, and refuses new ones until restore.
func (bed *testbed) cutGRPC() (restore func()) {
	var targets []string
	for _, p := range bed.proxies {
		targets = append(targets, p.Target())
		p.SetTarget("")
		<-p.CutAfter(0)
	}
	return func() {
		for i, p := range bed.proxies {
			p.SetTarget(targets[i])
		}
	}
}
