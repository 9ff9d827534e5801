//go:build rxe && linux && cgo

package roce_test

import (
	"net"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/integration/roce/internal/cabletest"
	"github.com/tryst-rdma/tryst/internal/rocetest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
	softroce "github.com/tryst-rdma/tryst/internal/softroce"
	"github.com/tryst-rdma/tryst/verbs"
)

// until waits for an acknowledgement with a syndrome.
func until(c *cabletest.Capture, is func(rocewire.Syndrome) bool, within time.Duration) bool {
	for {
		r, ok := c.More(within)
		if !ok {
			return false
		}
		p, _ := rocetest.ParseFrame(r.Frame)
		var h rocewire.Header
		if _, err := h.Decode(p.Data); err == nil && h.Op.HasAeth() && is(h.Syndrome) {
			return true
		}
	}
}

// newPair returns a connected queue pair on each of the devices of the VM.
func newPair(t *testing.T, family int, access verbs.Access) (a, b *kernel) {
	t.Helper()
	ends := softroce.DefaultPair()
	addrs := func(e softroce.End) *kernel {
		addr := e.IPv4.Addr()
		if family == 1 {
			addr = e.IPv6.Addr()
		}
		return newKernel(t, e.Name, addr, 1<<15)
	}
	a, b = addrs(ends[0]), addrs(ends[1])
	for i := range a.mem {
		a.mem[i] = byte(i*7 + i>>8)
	}
	b.access = access
	a.connect(verbs.MTU1024, b.endpoint())
	b.connect(verbs.MTU1024, a.endpoint())
	return a, b
}

// TestRxeCapture captures packets between two rxe devices, checks that package rocewire
// would build the same packets, and writes the capture to build/rxe.pcap.
// internal/rocewire/testdata has a copy.
func TestRxeCapture(t *testing.T) {
	overTheCable(t)
	c := cabletest.NewCapture(t, softroce.DefaultPair()[0].Netdev)
	for family, name := range []string{"IPv4", "IPv6"} {
		t.Run(name+" operations", func(t *testing.T) { operations(t, family) })
		for _, f := range refusals() {
			t.Run(name+" "+f.name, func(t *testing.T) {
				a, b := newPair(t, family, f.access)
				if f.receive > 0 {
					b.recv(verbs.RecvWR{ID: 1, SGL: b.sge(0, f.receive)})
				}
				wr := f.wr(a, b)
				wr.Signaled = true
				a.send(wr)
				a.done(t, f.want)
			})
		}
		t.Run(name+" no receive", func(t *testing.T) {
			a, b := newPair(t, family, remoteAll)
			a.send(verbs.SendWR{ID: 1, Op: verbs.OpSend, SGL: a.sge(0, 8), Signaled: true})
			if !until(c, rocewire.Syndrome.IsRNR, testTimeout) {
				t.Error("no RNR NAK")
			}
			b.recv(verbs.RecvWR{ID: 2, SGL: b.sge(0, 8)})
			a.done(t, verbs.StatusOK)
		})
		t.Run(name+" loss", func(t *testing.T) {
			a, b := newPair(t, family, remoteAll)
			defer cabletest.Lose(t, cabletest.Here{}, softroce.DefaultPair()[0].Netdev, 20)()
			for range 100 {
				a.send(verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: a.sge(0, 3000), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), Signaled: true})
				a.done(t, verbs.StatusOK)
				if until(c, func(s rocewire.Syndrome) bool { return s == rocewire.NAKSequence }, 0) {
					return
				}
			}
			t.Error("no NAK of a PSN sequence error for the lost packets")
		})
	}
	for _, ok := c.More(quiet); ok; _, ok = c.More(0) {
	}
	for _, r := range c.Records {
		p, _ := rocetest.ParseFrame(r.Frame)
		if _, _, err := p.Check(); err != nil {
			t.Errorf("%v to %v: %v", p.From, p.To, err)
		}
	}
	for _, what := range rocetest.MissingOfRxe(c.Records) {
		t.Errorf("the capture lacks %s", what)
	}
	c.Write("../../build", "rxe.pcap")
}

// operations runs each operation with messages of each form: empty, padded, one full
// packet, first and last, first, middle and last.
func operations(t *testing.T, family int) {
	a, b := newPair(t, family, remoteAll)
	for _, n := range []int{0, 3, 1024, 1026, 3001} {
		for _, op := range []verbs.Opcode{verbs.OpSend, verbs.OpSendImm, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead} {
			wr := verbs.SendWR{ID: 1, Op: op, Signaled: true, Solicited: n == 3 && op != verbs.OpRead, Imm: 0x01020304}
			if n > 0 {
				wr.SGL = a.sge(0, n)
			}
			switch op {
			case verbs.OpSend, verbs.OpSendImm:
				b.recv(verbs.RecvWR{ID: 2, SGL: b.sge(0, 4096)})
			case verbs.OpWriteImm:
				b.recv(verbs.RecvWR{ID: 2})
			}
			if op != verbs.OpSend && op != verbs.OpSendImm {
				wr.RemoteAddr, wr.RKey = b.mr.Addr()+4096, b.mr.RKey()
			}
			a.send(wr)
			a.done(t, verbs.StatusOK)
			if op != verbs.OpWrite && op != verbs.OpRead {
				b.done(t, verbs.StatusOK)
			}
		}
	}
	for _, op := range []verbs.Opcode{verbs.OpCompareSwap, verbs.OpFetchAdd} {
		a.send(verbs.SendWR{
			ID: 1, Op: op, Signaled: true, SGL: a.sge(0, 8), RemoteAddr: b.mr.Addr() + 1<<14, RKey: b.mr.RKey(),
			Compare: 0x0102030405060708, Swap: 0x1112131415161718, Add: 0x2122232425262728,
		})
		a.done(t, verbs.StatusOK)
	}
}

// refusal is a request that the responder rejects.
type refusal struct {
	name    string
	access  verbs.Access // of the responder's queue pair
	receive int          // length of the posted receive; 0: none is posted
	wr      func(a, b *kernel) verbs.SendWR
	want    verbs.Status // of the requester's completion, by the NAK
}

func refusals() []refusal {
	to := func(op verbs.Opcode, n int, offset uint64, key verbs.RKey) func(a, b *kernel) verbs.SendWR {
		return func(a, b *kernel) verbs.SendWR {
			return verbs.SendWR{ID: 1, Op: op, SGL: a.sge(0, n), RemoteAddr: b.mr.Addr() + offset, RKey: b.mr.RKey() + key}
		}
	}
	return []refusal{
		{"write with another key", remoteAll, 0, to(verbs.OpWrite, 8, 0, 0x100), verbs.StatusRemoteAccess},
		{"long write with another key", remoteAll, 0, to(verbs.OpWrite, 3000, 0, 0x100), verbs.StatusRemoteAccess},
		{"read with another key", remoteAll, 0, to(verbs.OpRead, 8, 0, 0x100), verbs.StatusRemoteAccess},
		{"atomic with another key", remoteAll, 0, to(verbs.OpFetchAdd, 8, 0, 0x100), verbs.StatusRemoteAccess},
		{"write beyond the end", remoteAll, 0, to(verbs.OpWrite, 8, 1<<15-4, 0), verbs.StatusRemoteAccess},
		{"read beyond the end", remoteAll, 0, to(verbs.OpRead, 8, 1<<15-4, 0), verbs.StatusRemoteAccess},
		{"write without the right", verbs.AccessRemoteRead, 0, to(verbs.OpWrite, 8, 0, 0), verbs.StatusRemoteInvalidRequest},
		{"read without the right", verbs.AccessRemoteWrite, 0, to(verbs.OpRead, 8, 0, 0), verbs.StatusRemoteInvalidRequest},
		{"atomic without the right", verbs.AccessRemoteWrite, 0, to(verbs.OpFetchAdd, 8, 0, 0), verbs.StatusRemoteInvalidRequest},
		{"send longer than its receive", remoteAll, 100, to(verbs.OpSend, 101, 0, 0), verbs.StatusRemoteOperation},
		{"long send longer than its receive", remoteAll, 1100, to(verbs.OpSend, 3000, 0, 0), verbs.StatusRemoteOperation},
	}
}

// overTheCable makes the IPv6 packets between the two devices travel over the cable.
// Both addresses belong to this host. With IPv4, accept_local and rp_filter are enough,
// but IPv6 looks up local addresses first. So packets that leave by one of the
// interfaces get a routing table of their own before that of local addresses.
func overTheCable(t *testing.T) {
	t.Helper()
	rule := func(priority, table int, oif string) *netlink.Rule {
		r := netlink.NewRule()
		r.Family, r.Priority, r.Table, r.OifName = netlink.FAMILY_V6, priority, table, oif
		return r
	}
	change := func(do, undo func(*netlink.Rule) error, r *netlink.Rule) {
		t.Helper()
		if err := do(r); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := undo(r); err != nil {
				t.Error(err)
			}
		})
	}
	change(netlink.RuleAdd, netlink.RuleDel, rule(1, unix.RT_TABLE_LOCAL, ""))
	change(netlink.RuleDel, netlink.RuleAdd, rule(0, unix.RT_TABLE_LOCAL, ""))
	ends := softroce.DefaultPair()
	for i, e := range ends {
		table := 100 + i
		change(netlink.RuleAdd, netlink.RuleDel, rule(0, table, e.Netdev))
		link, err := netlink.LinkByName(e.Netdev)
		if err != nil {
			t.Fatal(err)
		}
		_, network, err := net.ParseCIDR(e.IPv6.String())
		if err != nil {
			t.Fatal(err)
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: network, Table: table, Family: netlink.FAMILY_V6}
		if err := netlink.RouteAdd(route); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := netlink.RouteDel(route); err != nil {
				t.Error(err)
			}
		})
		cabletest.Neighbours(t, e.Netdev, cabletest.Running(t, ends[1-i].Netdev), ends[1-i].IPv6)
		t.Cleanup(func() {
			if err := netlink.NeighDel(&netlink.Neigh{LinkIndex: link.Attrs().Index, IP: ends[1-i].IPv6.Addr().AsSlice()}); err != nil {
				t.Error(err)
			}
		})
	}
}
