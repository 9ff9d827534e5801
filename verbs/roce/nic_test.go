package roce

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// nextEvent returns the next event of the device.
func (x *testEnd) nextEvent() (verbs.AsyncEvent, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return x.dev.NextEvent(ctx)
}

func (x *testEnd) expectEvent(want verbs.EventKind) {
	x.t.Helper()
	if e, err := x.nextEvent(); err != nil || e.Kind != want {
		x.t.Errorf("the event is %v, %v, want %v", e.Kind, err, want)
	}
}

// TestInterfaceDisappears: or is renamed, which ends the device, too. There is an
// event, posted work is flushed, calls return that the device is gone, and everything
// can be closed.
func TestInterfaceDisappears(t *testing.T) {
	for name, change := range map[string]func([]netif) []netif{
		"removed": func([]netif) []netif { return nil },
		"renamed": func(ifs []netif) []netif { ifs[0].name = "eth1"; return ifs },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFabric()
				x, y := f.pair(t, 1<<16)
				joinEnds(x, y, nil)
				x.recv(1, 0, 8)
				x.recv(2, 0, 8)
				x.post(x.to(y, 3, verbs.OpWrite, 0, 8, 0))
				x.ends(3, verbs.StatusOK)
				f.loss = 1
				x.post(x.to(y, 4, verbs.OpWrite, 0, 8, 0), x.to(y, 5, verbs.OpRead, 0, 8, 0))
				waits := make(chan error)
				go func() {
					if err := x.cq.Arm(true); err != nil {
						waits <- err
						return
					}
					waits <- x.cq.Wait(t.Context())
				}()
				synctest.Wait()

				f.hosts[0].change(change)
				x.expectEvent(verbs.EventDeviceFatal)
				if err := <-waits; err != nil && !errors.Is(err, verbs.ErrDeviceGone) {
					t.Errorf("the waiting call returns %v", err)
				}
				synctest.Wait()
				var wcs [8]verbs.WC
				n := must(x.cq.Poll(wcs[:]))(t)
				sends := slices.DeleteFunc(slices.Clone(wcs[:n]), func(wc verbs.WC) bool { return wc.ID < 3 })
				recvs := slices.DeleteFunc(slices.Clone(wcs[:n]), func(wc verbs.WC) bool { return wc.ID > 3 })
				expectWCs(t, "sends", sends, ended(4, verbs.StatusFlushed), ended(5, verbs.StatusFlushed))
				expectWCs(t, "receives", recvs, ended(1, verbs.StatusFlushed), ended(2, verbs.StatusFlushed))

				gone := func(call string, err error) {
					t.Helper()
					if !errors.Is(err, verbs.ErrDeviceGone) {
						t.Errorf("%s: %v", call, err)
					}
				}
				_, err := x.dev.AllocPD()
				gone("AllocPD", err)
				_, err = x.dev.Port(onlyPort)
				gone("Port", err)
				_, err = x.dev.GIDs(onlyPort)
				gone("GIDs", err)
				_, err = x.dev.CreateCQ(verbs.CQConfig{Size: 1})
				gone("CreateCQ", err)
				_, err = x.pd.RegisterMemory(make([]byte, 1), 0)
				gone("RegisterMemory", err)
				_, err = x.pd.CreateQP(verbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq})
				gone("CreateQP", err)
				_, err = x.qp.PostSend([]verbs.SendWR{x.to(y, 6, verbs.OpWrite, 0, 8, 0)})
				gone("PostSend", err)
				_, err = x.qp.PostRecv([]verbs.RecvWR{{}})
				gone("PostRecv", err)
				_, err = x.qp.State()
				gone("State", err)
				_, err = x.cq.Poll(wcs[:])
				gone("Poll", err)
				gone("Wait", x.cq.Wait(t.Context()))
				gone("Arm", x.cq.Arm(false))
				_, err = x.nextEvent()
				gone("NextEvent", err)

				// When the name is back, the device can be opened again, as a new one.
				f.hosts[0].change(func([]netif) []netif {
					return []netif{{index: 7, name: "eth0", mtu: 1500, up: true, addrs: []netip.Addr{x.addr}}}
				})
				d := must(x.provider.Open("roce-eth0"))(t)
				if p := must(d.Port(onlyPort))(t); p.ActiveMTU != verbs.MTU1024 {
					t.Errorf("the MTU is %d", p.ActiveMTU)
				}
				_, err = x.dev.AllocPD()
				gone("AllocPD of the old one", err)
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestAddressChanges: there is an event, and other addresses keep their indexes.
func TestAddressChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		h := f.host("10.0.0.1", "10.0.0.2", "fd00::1")
		x := newTestEnd(t, newProvider(Options{}, h), "roce-eth0", netip.MustParseAddr("fd00::1"), 64)
		set := func(addrs ...string) {
			h.change(func(ifs []netif) []netif {
				ifs[0].addrs = nil
				for _, a := range addrs {
					ifs[0].addrs = append(ifs[0].addrs, netip.MustParseAddr(a))
				}
				return ifs
			})
		}
		is := func(want map[int]string) {
			t.Helper()
			got := must(x.dev.GIDs(onlyPort))(t)
			if len(got) != len(want) {
				t.Errorf("the table is %v, want %v", got, want)
			}
			for _, e := range got {
				if e.GID.Addr().String() != want[e.Index] || e.Type != verbs.GIDTypeRoCEv2 {
					t.Errorf("entry %d is %v", e.Index, e)
				}
			}
		}
		is(map[int]string{0: "10.0.0.1", 1: "10.0.0.2", 2: "fd00::1"})
		set("10.0.0.2", "fd00::1")
		x.expectEvent(verbs.EventGIDChange)
		is(map[int]string{1: "10.0.0.2", 2: "fd00::1"})
		set("10.0.0.3", "10.0.0.2", "fd00::1", "10.0.0.4")
		x.expectEvent(verbs.EventGIDChange)
		is(map[int]string{0: "10.0.0.3", 1: "10.0.0.2", 2: "fd00::1", 3: "10.0.0.4"})
		set("fd00::1", "10.0.0.4", "10.0.0.3", "10.0.0.2") // a different order is no change
		if e, err := x.nextEvent(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nothing changed, and there is %v, %v", e.Kind, err)
		}
		// The empty entry cannot be used.
		set("fd00::1")
		x.expectEvent(verbs.EventGIDChange)
		q := must(x.pd.CreateQP(verbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq}))(t)
		if err := q.ToInit(verbs.InitAttr{Port: onlyPort, SGIDIndex: 0}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("an empty entry: %v", err)
		}
		if err := q.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOnlyAddressDisappearsAndReturns: an interface without an address keeps its opened
// device, with an empty table. When the address is back, connected queue pairs
// continue, and new ones can be connected.
func TestOnlyAddressDisappearsAndReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x, y := f.pair(t, 4096)
		joinEnds(x, y, nil)
		was := slices.Clone(f.hosts[0].ifs[0].addrs)
		set := func(up bool, addrs []netip.Addr) {
			f.hosts[0].change(func(ifs []netif) []netif { ifs[0].up, ifs[0].addrs = up, addrs; return ifs })
		}
		for name, down := range map[string]bool{"flushed": false, "taken down": true} {
			set(!down, nil)
			if down {
				x.expectEvent(verbs.EventPortDown)
			}
			x.expectEvent(verbs.EventGIDChange)
			if table := must(x.dev.GIDs(onlyPort))(t); len(table) > 0 {
				t.Errorf("%s: the table has %v", name, table)
			}
			if p := must(x.dev.Port(onlyPort))(t); (p.State == verbs.PortActive) == down {
				t.Errorf("%s: the port is %v", name, p.State)
			}
			x.post(x.to(y, 1, verbs.OpWrite, 0, 8, 0))
			if down { // the address returns after the link, as with IPv6
				set(true, nil)
				x.expectEvent(verbs.EventPortActive)
			}
			if _, err := x.provider.Devices(); err != nil {
				t.Error(err)
			}
			set(true, was)
			x.expectEvent(verbs.EventGIDChange)
			x.ends(1, verbs.StatusOK)
			q := must(x.pd.CreateQP(verbs.QPConfig{SendCQ: x.cq, RecvCQ: x.cq}))(t)
			if err := x.path().Init(q); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := q.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// TestInterfaceWithoutAddressIsNoDevice: unless the device was opened before.
func TestInterfaceWithoutAddressIsNoDevice(t *testing.T) {
	h := newFabric().host(hostA)
	p := newProvider(Options{}, h)
	names := func(want ...string) {
		t.Helper()
		var got []string
		for _, d := range must(p.Devices())(t) {
			got = append(got, d.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("there are %q, want %q", got, want)
		}
	}
	set := func(addrs ...netip.Addr) {
		h.change(func(ifs []netif) []netif { ifs[0].addrs = addrs; return ifs })
	}
	addr := netip.MustParseAddr(hostA)
	names("roce-eth0")
	set()
	names()
	set(addr)
	d := must(p.Open("roce-eth0"))(t)
	set()
	names("roce-eth0")
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	names()
}

// TestUnreadableAddressesStay: the previous addresses stay valid.
func TestUnreadableAddressesStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFabric()
		x := newTestEnd(t, newProvider(Options{}, f.host(hostA)), "roce-eth0", netip.MustParseAddr(hostA), 64)
		f.hosts[0].change(func(ifs []netif) []netif { ifs[0].addrs, ifs[0].unread = nil, true; return ifs })
		if e, err := x.nextEvent(); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("there is %v, %v", e.Kind, err)
		}
		if table := must(x.dev.GIDs(onlyPort))(t); len(table) != 1 {
			t.Errorf("the table is %v", table)
		}
	})
}

// TestInterfacesOfTheHost: all interfaces are listed, also those without addresses or
// with unreadable ones.
func TestInterfacesOfTheHost(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	if got := must(host{}.interfaces())(t); len(got) != len(all) {
		t.Errorf("%d of %d interfaces are listed", len(got), len(all))
	}
	eth := net.Interface{Index: 3, Name: "eth0", MTU: 1500, Flags: net.FlagUp | net.FlagRunning}
	addrs := []net.Addr{
		&net.IPNet{IP: net.IPv4(10, 0, 0, 1), Mask: net.CIDRMask(24, 32)},
		&net.IPNet{IP: net.ParseIP("fe80::1"), Mask: net.CIDRMask(64, 128)},
	}
	n := netifOf(eth, addrs, nil)
	want := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fe80::1%eth0")}
	if !slices.Equal(n.addrs, want) || n.unread || !n.up || n.index != 3 || n.name != "eth0" || n.mtu != 1500 {
		t.Errorf("it is %+v", n)
	}
	if n := netifOf(eth, nil, nil); n.unread || len(n.addrs) > 0 || n.index != 3 {
		t.Errorf("without addresses it is %+v", n)
	}
	if n := netifOf(eth, nil, errors.New("netlink is busy")); !n.unread || n.index != 3 {
		t.Errorf("one that cannot be read is %+v", n)
	}
}

// TestMTUOf: the largest MTU whose packets fit, as in rxe.
func TestMTUOf(t *testing.T) {
	for mtu, want := range map[int]verbs.MTU{
		576: 256, 1279: 1024, 1500: 1024, 2127: 1024, 2128: 2048, 4175: 2048, 4176: 4096, 9000: 4096, 65536: 4096, 591: 256, 592: 512,
	} {
		if got := mtuOf(mtu); got != want {
			t.Errorf("MTU %d: %d, want %d", mtu, got, want)
		}
	}
}
