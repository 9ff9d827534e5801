package discovery

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// Want is what was asked for. The zero Want is "whatever is best".
type Want struct {
	// Device is the name of an RDMA device ("mlx5_0"), of a netdev ("eth0") or
	// an address of this host ("192.0.2.1"); "": any.
	Device string
	// Port is the number of the port, from 1; 0: any.
	Port uint8
	// GIDIndex is the index into the port's GID table; nil: the best entry.
	// The entry itself is looked at: a table is sparse.
	GIDIndex *int
	// Type is the kind of the GID; GIDTypeUnknown: RoCE v2 before v1.
	Type verbs.GIDType
	// Family is the family of addresses; FamilyAny: IPv4 before IPv6.
	Family Family
	// MTU is the path MTU; 0: the port's active MTU.
	MTU verbs.MTU
	// ServiceLevel is that of InfiniBand, 0 to 15, or the priority on Ethernet, which
	// has 0 to 7.
	ServiceLevel uint8
	// LocalAddr is the address by which peers reach this process, on RoCE the best that
	// there is; zero: not known. LocalAddrWhy says in words how it is known.
	LocalAddr    netip.Addr
	LocalAddrWhy string
	// Before is the address that was used until now, which is preferred to others that
	// reach as far; zero for none.
	Before verbs.GID
}

// names reports whether something was asked for. What only orders what there is does not
// count.
func (w Want) names() bool {
	w.LocalAddr, w.LocalAddrWhy, w.Before = netip.Addr{}, "", verbs.GID{}
	return w != Want{}
}

// Family is a family of addresses.
type Family uint8

// The families.
const (
	FamilyAny Family = iota
	FamilyIPv4
	FamilyIPv6
)

func (f Family) String() string { return [...]string{"any", "IPv4", "IPv6"}[min(f, FamilyIPv6)] }

// target is how Want.Device was understood.
type target struct {
	device string     // an RDMA device
	netdev string     // a netdev
	addr   netip.Addr // an address
	words  string     // how it was understood
	master string     // the bond that the netdev is a part of, whose addresses its port has
}

// understand finds out what a name is: first a device, then a netdev, then an
// address. The error is verbs.ErrNotFound and lists what there is.
func understand(inv *Inventory, name string) (target, error) {
	if name == "" {
		return target{}, nil
	}
	quoted := fmt.Sprintf("%q", name)
	if inv.Device(name) != nil {
		t := target{device: name, words: quoted + " is an RDMA device"}
		if inv.Netdev(name) != nil {
			t.words += " (and a network device, which the name then does not mean)"
		}
		return t, nil
	}
	if n := inv.Netdev(name); n != nil {
		return target{netdev: name, master: n.Master, words: quoted + " is a network device"}, nil
	}
	if a, err := netip.ParseAddr(name); err == nil {
		a = a.Unmap()
		t := target{addr: a.WithZone(""), words: quoted + " is an address"}
		if z := a.Zone(); z != "" {
			t.netdev = z
		}
		if n := inv.holder(t.addr); n != nil {
			t.words += " of " + n.Name
		}
		return t, nil
	}
	var names []string
	for _, d := range inv.Devices {
		names = append(names, d.Name)
	}
	return target{}, verbs.Errorf("choose RDMA device", quoted, verbs.ErrNotFound,
		"it is no RDMA device (there %s), no network device, and no address", listed(names, "is none"))
}

// rejects says why a port is not what the name means, or "". What entries of its
// table the name leaves, rejectsGID says.
func (t target) rejects(inv *Inventory, d *Device, p *Port) string {
	switch {
	case t.device != "" && d.Name != t.device:
		return fmt.Sprintf("%s was asked for", t.device)
	case t.addr.IsValid():
		if n := inv.holder(t.addr); n != nil && p.Link == verbs.LinkInfiniBand && n.Name == p.Netdev {
			return ""
		}
		for _, g := range p.GIDs {
			if p.Link == verbs.LinkEthernet && g.GID.Addr() == t.addr && (t.netdev == "" || g.Netdev == t.netdev) {
				return ""
			}
		}
		if n := inv.holder(t.addr); n != nil {
			return fmt.Sprintf("%s was asked for, which is on %s, and none of the port's GIDs is that address", t.addr, n.Name)
		}
		return fmt.Sprintf("%s was asked for, and that is no address of this host", t.addr)
	case t.netdev != "":
		if p.Netdev == t.netdev {
			return ""
		}
		for _, g := range p.GIDs {
			if g.Netdev == t.netdev {
				return ""
			}
		}
		return fmt.Sprintf("%s was asked for, and the port is on %s", t.netdev, orNone(p.Netdev))
	}
	return ""
}

// rejectsGID says why an entry is not what the name means, or "".
func (t target) rejectsGID(p *Port, g GID) string {
	if p.Link == verbs.LinkInfiniBand {
		return ""
	}
	switch {
	case t.addr.IsValid() && g.GID.Addr() != t.addr:
		return fmt.Sprintf("%s was asked for", t.addr)
	case t.netdev != "" && g.Netdev != t.netdev && (p.Netdev != t.netdev || g.Netdev != "" && g.Netdev != t.master):
		return fmt.Sprintf("%s was asked for, and it belongs to %s", t.netdev, orNone(g.Netdev))
	}
	return ""
}

func orNone(netdev string) string {
	if netdev == "" {
		return "no network device"
	}
	return netdev
}

// String tells a Want in the words of the flags.
func (w Want) String() string {
	var s []string
	if w.Device != "" {
		s = append(s, "device "+w.Device)
	}
	if w.Port != 0 {
		s = append(s, fmt.Sprintf("port %d", w.Port))
	}
	if w.GIDIndex != nil {
		s = append(s, fmt.Sprintf("GID index %d", *w.GIDIndex))
	}
	if w.Type != verbs.GIDTypeUnknown {
		s = append(s, w.Type.String())
	}
	if w.Family != FamilyAny {
		s = append(s, w.Family.String())
	}
	if w.MTU != 0 {
		s = append(s, fmt.Sprintf("MTU %d", int(w.MTU)))
	}
	if w.ServiceLevel != 0 {
		s = append(s, fmt.Sprintf("service level %d", w.ServiceLevel))
	}
	if w.LocalAddr.IsValid() {
		s = append(s, fmt.Sprintf("near %s", w.LocalAddr))
	}
	if len(s) == 0 {
		return "any"
	}
	return strings.Join(s, ", ")
}
