package discovery

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// Choice is the port and the entry of its GID table to use.
type Choice struct {
	Device    string
	Port      uint8
	GIDIndex  int
	GID       verbs.GID
	Type      verbs.GIDType
	Link      verbs.LinkLayer
	LID       verbs.LID // InfiniBand
	Netdev    string    // the GID's, or the port's; "" for none
	NetdevMTU int       // bytes; 0 unknown
	// MTU is the path MTU: what was asked for, or the port's; 0 when it is not
	// known before the device is open (then PathMTU with what the port says).
	MTU  verbs.MTU
	NUMA int // -1 unknown
	// Near is false if peers reach this process by another address than that of the GID
	// (Want.LocalAddr). Then another port, which may come later, would be better.
	Near bool
	// Understood is how Want.Device was understood; "" when it was empty.
	Understood string
	// Reason is why this one.
	Reason string
	// Warnings are what is right and may not be what was meant.
	Warnings []string
	// Against are the others, ports and then entries of the chosen port, each
	// with why not.
	Against []Rejected
}

// Rejected is what was not chosen.
type Rejected struct {
	What string // "mlx5_1 port 1", "mlx5_0 port 1 GID 0 (fe80:…, RoCE v1)"
	Why  string
}

// String is the choice in one line.
func (c Choice) String() string {
	s := fmt.Sprintf("%s port %d, GID %d (%s, %s)", c.Device, c.Port, c.GIDIndex, c.GID, c.Type)
	if c.Netdev != "" {
		s += " on " + c.Netdev
	}
	if c.MTU != 0 {
		s += fmt.Sprintf(", MTU %d", int(c.MTU))
	}
	return s
}

// NoChoice is why nothing can be used: every port with its reason. It is
// verbs.ErrNotFound where something was asked for, else verbs.ErrUnavailable.
type NoChoice struct {
	Want       Want
	Understood string
	// Waits is set if a port that was meant is not active, or has no address: it can be
	// used when its link is up.
	Waits   bool
	Against []Rejected
}

func (e *NoChoice) Error() string {
	var s strings.Builder
	s.WriteString("no RDMA port can be used")
	if e.Want != (Want{}) {
		fmt.Fprintf(&s, " (%s)", e.Want)
	}
	if e.Understood != "" {
		fmt.Fprintf(&s, ": %s", e.Understood)
	}
	if len(e.Against) == 0 {
		s.WriteString(": this host has no RDMA device")
	}
	for i, r := range e.Against {
		if i == 0 {
			s.WriteString(": ")
		} else {
			s.WriteString("; ")
		}
		fmt.Fprintf(&s, "%s: %s", r.What, r.Why)
	}
	return s.String()
}

// Unwrap returns the sentinel.
func (e *NoChoice) Unwrap() error {
	if e.Want.names() {
		return verbs.ErrNotFound
	}
	return verbs.ErrUnavailable
}

// candidate is a port that could be used, with its best entry.
type candidate struct {
	dev  *Device
	port *Port
	gid  GID
	mtu  verbs.MTU
	// others are the entries that are not the best.
	others []Rejected
	gidWhy string
}

func portName(d *Device, p *Port) string { return fmt.Sprintf("%s port %d", d.Name, p.Number) }

func (c *candidate) name() string { return portName(c.dev, c.port) }

// Choose takes the best port and GID for a wish:
//
//  1. A port must be active, speak InfiniBand or RoCE (not iWARP), have the GID
//     that was asked for or any, and take the MTU that was asked for.
//  2. The device of a bond stands for the bond; its parts' devices step back,
//     unless one of them was asked for by name.
//  3. Hardware before Soft-RoCE; then the port with the better GID, in the order
//     of rule 4; then the faster port; then the lowest name and port.
//  4. On InfiniBand the GID is entry 0. On RoCE: the address by which peers reach
//     this process, where it is known, and loopback only if that is loopback; an
//     address that reaches further before loopback, and that before link-local; the
//     address that was used before; RoCE v2 before v1; IPv4 before IPv6; the port's
//     own netdev before VLANs on it; the lowest index.
//
// The error is *NoChoice, or verbs.ErrNotFound when the device's name means
// nothing here, or verbs.ErrInvalid for a wish that nothing could fulfil.
func Choose(inv Inventory, want Want) (Choice, error) {
	if _, err := PathMTU(want.MTU, 0); err != nil {
		return Choice{}, err
	}
	if want.GIDIndex != nil && *want.GIDIndex < 0 {
		return Choice{}, verbs.Errorf("choose GID", fmt.Sprint(*want.GIDIndex), verbs.ErrInvalid, "an index into the GID table counts from 0")
	}
	target, err := understand(&inv, want.Device)
	if err != nil {
		return Choice{}, err
	}
	var good []*candidate
	waits := false
	var against, others []Rejected // others are what the device's name does not mean: they are listed last
	for i := range inv.Devices {
		d := &inv.Devices[i]
		if len(d.Ports) == 0 {
			against = append(against, Rejected{d.Name, noPorts(d)})
		}
		for j := range d.Ports {
			if why := target.rejects(&inv, d, &d.Ports[j]); why != "" {
				others = append(others, Rejected{portName(d, &d.Ports[j]), why})
				continue
			}
			c, why := judge(&inv, d, &d.Ports[j], want, target)
			if why != "" {
				waits = waits || inactive(&inv, &d.Ports[j]) != "" || len(d.Ports[j].GIDs) == 0
				against = append(against, Rejected{portName(d, &d.Ports[j]), why})
				continue
			}
			good = append(good, c)
		}
	}
	if target.device == "" {
		var parts []Rejected
		good, parts = withoutBondParts(&inv, good)
		against = append(against, parts...)
	}
	if len(good) == 0 {
		return Choice{}, &NoChoice{Want: want, Understood: target.words, Waits: waits, Against: append(against, others...)}
	}
	slices.SortStableFunc(good, func(a, b *candidate) int { n, _ := want.prefer(a, b); return n })
	best := good[0]
	for _, c := range good[1:] {
		_, why := want.prefer(best, c)
		against = append(against, Rejected{c.name(), why})
	}
	return best.choice(&inv, want, target, good, slices.Concat(against, others, best.others)), nil
}

func noPorts(d *Device) string {
	if len(d.Problems) > 0 {
		return "its ports cannot be read: " + d.Problems[0].Error()
	}
	return "it has no ports"
}

// maxPriority is the highest priority of an Ethernet frame (IEEE 802.1Q: three bits).
const maxPriority = 7

// judge finds a port's best GID, or says why the port cannot be used.
func judge(inv *Inventory, d *Device, p *Port, want Want, t target) (*candidate, string) {
	if want.Port != 0 && p.Number != want.Port {
		return nil, fmt.Sprintf("port %d was asked for", want.Port)
	}
	if d.NodeType != NodeCA && d.NodeType != NodeUnknown {
		if d.NodeType == NodeRNIC {
			return nil, "it speaks iWARP, which connects only through the RDMA connection manager; InfiniBand or RoCE is needed"
		}
		return nil, fmt.Sprintf("its node type is %s, which has no reliable connections", d.NodeType)
	}
	if why := inactive(inv, p); why != "" {
		return nil, why
	}
	c := &candidate{dev: d, port: p}
	var why string
	switch p.Link {
	case verbs.LinkInfiniBand:
		why = c.infiniband(want)
	case verbs.LinkEthernet:
		why = c.roce(want, t)
	default:
		why = "its link layer is neither InfiniBand nor Ethernet"
	}
	if why != "" {
		return nil, why
	}
	if p.Link == verbs.LinkEthernet && want.ServiceLevel > maxPriority {
		return nil, fmt.Sprintf("service level %d was asked for, and on Ethernet it is the priority, 0 to %d (the setting rdma.service-level)", want.ServiceLevel, maxPriority)
	}
	mtu, err := PathMTU(want.MTU, p.ActiveMTU)
	if err != nil {
		return nil, fmt.Sprintf("a path MTU of %d was asked for, and the port's active MTU is %d", int(want.MTU), int(p.ActiveMTU))
	}
	c.mtu = mtu
	return c, ""
}

// inactive says why a port is not active, and what would make it so.
func inactive(inv *Inventory, p *Port) string {
	if p.State == verbs.PortActive || p.State == verbs.PortActiveDefer {
		return ""
	}
	why := "the port is " + p.State.String()
	if p.Physical != "" {
		why += " (physical state " + p.Physical + ")"
	}
	switch {
	case p.Link == verbs.LinkInfiniBand && (p.State == verbs.PortInit || p.State == verbs.PortArmed):
		why += ": no subnet manager has made it active"
	case p.Link == verbs.LinkEthernet && p.Netdev != "":
		if n := inv.Netdev(p.Netdev); n != nil && !n.Up {
			why += fmt.Sprintf(": %s is %s (ip link set %s up)", n.Name, n.State, n.Name)
		}
	}
	return why
}

// infiniband takes entry 0, or the one that was asked for.
func (c *candidate) infiniband(want Want) string {
	if want.Family != FamilyAny {
		return fmt.Sprintf("%s was asked for, and it is InfiniBand, whose GIDs are no addresses", want.Family)
	}
	if want.Type != verbs.GIDTypeUnknown && want.Type != verbs.GIDTypeIB {
		return fmt.Sprintf("%s was asked for, and it is InfiniBand", want.Type)
	}
	if c.port.LID == 0 {
		return "it has no LID: there is no subnet manager on its fabric"
	}
	index := 0
	c.gidWhy = "InfiniBand uses entry 0"
	if want.GIDIndex != nil {
		index, c.gidWhy = *want.GIDIndex, "asked for"
	}
	found := false
	for _, g := range c.port.GIDs {
		if g.Index == index {
			c.gid, found = g, true
			continue
		}
		c.others = append(c.others, Rejected{c.name() + " " + g.String(), fmt.Sprintf("entry %d is used: %s", index, c.gidWhy)})
	}
	if !found {
		return c.emptyGID(index)
	}
	return ""
}

// emptyGID says that an entry is empty, and which are not.
func (c *candidate) emptyGID(index int) string {
	if index >= c.port.TableSize {
		return fmt.Sprintf("GID index %d is beyond its table of %d entries", index, c.port.TableSize)
	}
	var filled []string
	for _, g := range c.port.GIDs {
		filled = append(filled, fmt.Sprintf("%d (%s, %s)", g.Index, g.GID, g.Type))
	}
	return fmt.Sprintf("GID index %d is empty; with a GID there %s", index, listed(filled, "is none"))
}

// roce takes the best entry that fits.
func (c *candidate) roce(want Want, t target) string {
	if want.Type == verbs.GIDTypeIB {
		return "InfiniBand was asked for, and it is RoCE"
	}
	if len(c.port.GIDs) == 0 {
		why := "its GID table is empty"
		if c.port.Netdev != "" {
			why += fmt.Sprintf(": %s has no address yet (ip addr add … dev %s)", c.port.Netdev, c.port.Netdev)
		}
		return why
	}
	if want.GIDIndex != nil && !slices.ContainsFunc(c.port.GIDs, func(g GID) bool { return g.Index == *want.GIDIndex }) {
		return c.emptyGID(*want.GIDIndex)
	}
	var fit []GID
	var first string
	for _, g := range c.port.GIDs {
		why := t.rejectsGID(c.port, g)
		switch {
		case why != "":
		case want.GIDIndex != nil && g.Index != *want.GIDIndex:
			why = fmt.Sprintf("index %d was asked for", *want.GIDIndex)
		case want.Type != verbs.GIDTypeUnknown && g.Type != want.Type:
			why = fmt.Sprintf("%s was asked for", want.Type)
		case g.Type == verbs.GIDTypeUnknown:
			why = "its type could not be read"
		case want.GIDIndex == nil && want.Device == "" && want.beyondHost() && g.GID.Addr().IsLoopback():
			why = fmt.Sprintf("it is loopback, and peers reach this process by %s", want.LocalAddr)
		case want.Family == FamilyIPv4 && !g.GID.Addr().Is4(), want.Family == FamilyIPv6 && g.GID.Addr().Is4():
			why = fmt.Sprintf("%s was asked for", want.Family)
		}
		if why == "" {
			fit = append(fit, g)
			continue
		}
		if want.GIDIndex != nil && g.Index == *want.GIDIndex {
			first = fmt.Sprintf("%s: %s", g, why)
		}
		c.others = append(c.others, Rejected{c.name() + " " + g.String(), why})
	}
	if len(fit) == 0 {
		if first != "" {
			return first
		}
		return "none of its GIDs fits: " + told(c.others, c.name()+" ")
	}
	own := c.port.Netdev
	slices.SortStableFunc(fit, func(a, b GID) int { n, _ := want.preferGID(a, b, own); return n })
	c.gid = fit[0]
	c.gidWhy = want.gidReason(c.gid, fit[1:], own)
	if want.GIDIndex != nil {
		c.gidWhy = "asked for"
	}
	for _, g := range fit[1:] {
		_, why := want.preferGID(c.gid, g, own)
		c.others = append(c.others, Rejected{c.name() + " " + g.String(), why})
	}
	return ""
}

// told is a list of what was rejected in one line.
func told(rs []Rejected, prefix string) string {
	var s []string
	for _, r := range rs {
		s = append(s, strings.TrimPrefix(r.What, prefix)+": "+r.Why)
	}
	return strings.Join(s, "; ")
}

// choice puts the words together.
func (c *candidate) choice(inv *Inventory, want Want, t target, good []*candidate, against []Rejected) Choice {
	ch := Choice{
		Device: c.dev.Name, Port: c.port.Number, GIDIndex: c.gid.Index, GID: c.gid.GID, Type: c.gid.Type,
		Link: c.port.Link, LID: c.port.LID, Netdev: c.gid.Netdev, MTU: c.mtu, NUMA: c.dev.NUMA,
		Near:       !want.LocalAddr.IsValid() || c.port.Link == verbs.LinkInfiniBand || want.isNear(c.gid),
		Understood: t.words, Against: against,
	}
	if ch.Netdev == "" {
		ch.Netdev = c.port.Netdev
	}
	if n := inv.Netdev(ch.Netdev); n != nil {
		ch.NetdevMTU = n.MTU
	}
	why := "the only port that can be used"
	switch {
	case want.Device != "" && len(good) == 1:
		why = "asked for"
	case len(good) > 1:
		why = fmt.Sprintf("the best of %d that can be used (the next is %s)", len(good), good[1].name()) // Against has the reason
	}
	ch.Reason = fmt.Sprintf("%s is %s; %s: %s", c.name(), why, c.gid, c.gidWhy)
	if c.gid.GID.Addr().IsLinkLocalUnicast() && c.port.Link == verbs.LinkEthernet {
		ch.Warnings = append(ch.Warnings, fmt.Sprintf("%s is link-local and reaches no further than its own segment; give %s an address", c.gid, orNone(ch.Netdev)))
	}
	if c.gid.Type == verbs.GIDTypeRoCEv1 {
		ch.Warnings = append(ch.Warnings, fmt.Sprintf("%s is RoCE v1: it crosses no router, and talks to RoCE v1 only; choose a GID of RoCE v2 if there is one (the setting rdma.gid-index)", c.gid))
	}
	if bond := bondOf(inv, c.port); bond != "" && !isBondDevice(inv, c) && t.device != "" {
		ch.Warnings = append(ch.Warnings, fmt.Sprintf("%s is a part of %s: when its link fails, the bond goes on and this device does not; choose the device of the bond if there is one (the setting rdma.device)", orNone(c.port.Netdev), bond))
	}
	return ch
}
