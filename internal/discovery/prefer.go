package discovery

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// reach orders addresses by how far they reach.
func reach(g GID) int {
	a := g.GID.Addr()
	switch {
	case a.IsLinkLocalUnicast():
		return 2
	case a.IsLoopback():
		return 1
	}
	return 0
}

var reachWords = [...]string{"reaches beyond its segment", "is loopback, which reaches this host only", "is link-local"}

// nearness orders the addresses of RoCE ports by how well they fit that by which
// peers reach this process. For a loopback address another one of its family does.
func (w Want) nearness(g GID) int {
	a := g.GID.Addr()
	switch {
	case !w.LocalAddr.IsValid() || a == w.LocalAddr.WithZone(""):
		return 0
	case a.IsLoopback() && w.LocalAddr.IsLoopback() && a.Is4() == w.LocalAddr.Is4():
		return 1
	}
	return 2
}

// isNear reports whether peers reach this process by an entry.
func (w Want) isNear(g GID) bool { return w.LocalAddr.IsValid() && w.nearness(g) < 2 }

// beyondHost reports whether peers reach this process by an address that is not loopback.
func (w Want) beyondHost() bool { return w.LocalAddr.IsValid() && !w.LocalAddr.IsLoopback() }

// preferGID is the function of that name, for a wish.
func (w Want) preferGID(a, b GID, own string) (int, string) {
	if n := cmp.Compare(w.nearness(a), w.nearness(b)); n != 0 {
		return n, fmt.Sprintf("peers reach this process by %s", w.LocalAddr)
	}
	if x, y := a.GID == w.Before, b.GID == w.Before; x != y && reach(a) == reach(b) {
		return sign(x), "the other one was used before"
	}
	return preferGID(a, b, own)
}

// preferGID compares two entries of RoCE ports: negative when a is better, with
// why b is not taken. own is the netdev of the port (of both; "" when they are of
// two).
func preferGID(a, b GID, own string) (int, string) {
	if n := cmp.Compare(reach(a), reach(b)); n != 0 {
		return n, "it " + reachWords[max(reach(a), reach(b))]
	}
	if n := cmp.Compare(b.Type, a.Type); n != 0 { // the types count up to v2
		return n, fmt.Sprintf("it is %s, and %s is preferred", min(a.Type, b.Type), max(a.Type, b.Type))
	}
	if x, y := a.GID.Addr().Is4(), b.GID.Addr().Is4(); x != y {
		return sign(x), "it is IPv6, and IPv4 is preferred"
	}
	if own == "" {
		return 0, ""
	}
	if x, y := a.Netdev == own, b.Netdev == own; x != y {
		other := a
		if x {
			other = b
		}
		return sign(x), fmt.Sprintf("it belongs to %s, and the port's own %s is preferred", orNone(other.Netdev), own)
	}
	return cmp.Compare(a.Index, b.Index), fmt.Sprintf("as good as GID %d, which has the lower index", min(a.Index, b.Index))
}

// sign is negative when the first of two is the better.
func sign(first bool) int {
	if first {
		return -1
	}
	return 1
}

// gidReason says what is good about an entry.
func (w Want) gidReason(g GID, others []GID, own string) string {
	if w.isNear(g) {
		return fmt.Sprintf("peers reach this process by %s (%s)", w.LocalAddr, w.LocalAddrWhy)
	}
	if len(others) == 0 {
		return "the only one that fits"
	}
	s := g.Type.String() + " over IPv6"
	if g.GID.Addr().Is4() {
		s = g.Type.String() + " over IPv4"
	}
	if reach(g) > 0 {
		s += ", and there is nothing that reaches further"
	}
	if own != "" && g.Netdev != own {
		s += ", of " + orNone(g.Netdev)
	}
	return s
}

// prefer compares two ports that can both be used: negative when a is better,
// with why b (the worse) is not taken.
func (w Want) prefer(a, b *candidate) (int, string) {
	if x, y := !a.dev.Software(), !b.dev.Software(); x != y {
		return sign(x), fmt.Sprintf("it is made of software, and %s is hardware", pick(x, a, b).dev.Name)
	}
	if a.port.Link == verbs.LinkEthernet && b.port.Link == verbs.LinkEthernet {
		if n, why := w.preferGID(a.gid, b.gid, ""); n != 0 {
			return n, fmt.Sprintf("its %s: %s", pick(n > 0, a, b).gid, why)
		}
	} else if x, y := usable(a), usable(b); x != y {
		return sign(x), fmt.Sprintf("its %s %s, and %s needs no address", pick(y, a, b).gid, reachWords[2], pick(x, a, b).name())
	}
	if n := cmp.Compare(b.port.Rate.Mbps, a.port.Rate.Mbps); n != 0 {
		worse, better := pick(n > 0, a, b), pick(n < 0, a, b)
		return n, fmt.Sprintf("it is slower: %s, and %s has %s", rateText(worse), better.name(), rateText(better))
	}
	n := natural(a.dev.Name, b.dev.Name)
	if n == 0 {
		n = cmp.Compare(a.port.Number, b.port.Number)
	}
	return n, fmt.Sprintf("as good as %s, which has the lower name", pick(n < 0, a, b).name())
}

// usable reports whether a port needs no luck: InfiniBand, or a GID that is not
// link-local.
func usable(c *candidate) bool { return c.port.Link == verbs.LinkInfiniBand || reach(c.gid) < 2 }

func pick(first bool, a, b *candidate) *candidate {
	if first {
		return a
	}
	return b
}

func rateText(c *candidate) string {
	if c.port.Rate.Text == "" {
		return "an unknown rate"
	}
	return c.port.Rate.Text
}

// bondOf is the bond that a port belongs to, or "": its netdev is one, is a part
// of one, or its table has entries of one (the kernel puts a bond's addresses
// into the table of the part that is active).
func bondOf(inv *Inventory, p *Port) string {
	isBond := func(name string) bool { n := inv.Netdev(name); return n != nil && n.Bond }
	if isBond(p.Netdev) {
		return p.Netdev
	}
	if n := inv.Netdev(p.Netdev); n != nil && isBond(n.Master) {
		return n.Master
	}
	for _, g := range p.GIDs {
		if isBond(g.Netdev) {
			return g.Netdev
		}
	}
	return ""
}

// isBondDevice reports whether the device stands for a whole bond: mlx5 calls it
// mlx5_bond_0, and its netdev by netlink is the active part.
func isBondDevice(inv *Inventory, c *candidate) bool {
	n := inv.Netdev(c.port.Netdev)
	return strings.Contains(c.dev.Name, "bond") || n != nil && n.Bond
}

// withoutBondParts takes out the devices of the parts of a bond for which a
// device stands.
func withoutBondParts(inv *Inventory, all []*candidate) (rest []*candidate, parts []Rejected) {
	whole := make(map[string]*candidate)
	for _, c := range all {
		if b := bondOf(inv, c.port); b != "" && isBondDevice(inv, c) {
			whole[b] = c
		}
	}
	for _, c := range all {
		if w := whole[bondOf(inv, c.port)]; w != nil && w != c && !isBondDevice(inv, c) {
			parts = append(parts, Rejected{c.name(), fmt.Sprintf("%s is a part of %s, for which %s stands", orNone(c.port.Netdev), bondOf(inv, c.port), w.dev.Name)})
			continue
		}
		rest = append(rest, c)
	}
	return rest, parts
}
