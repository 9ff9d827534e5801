package roce

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
)

// nic is a device, which is a network interface. The provider's lock guards it.
type nic struct {
	name string
	netif
	// gids is the GID table. An address keeps its index while the interface has it,
	// since queue pairs refer to the index.
	gids []netip.Addr
	open map[*device]struct{}
	gone bool
}

// deviceName returns the name of an interface's device.
func deviceName(netif string) string { return Name + "-" + netif }

// Interface returns the network interface of a device; false if the name is not that of
// a device of this provider.
func Interface(device string) (netif string, ok bool) {
	return strings.CutPrefix(device, deviceName(""))
}

func newNIC(i netif) *nic {
	n := &nic{name: deviceName(i.name), open: make(map[*device]struct{})}
	n.set(i)
	return n
}

// set updates the interface, and reports whether its addresses changed.
func (n *nic) set(i netif) (changed bool) {
	if i.unread {
		i.addrs = n.addrs
	}
	n.netif = i
	for at, a := range n.gids {
		if a.IsValid() && !slices.Contains(i.addrs, a) {
			n.gids[at], changed = netip.Addr{}, true
		}
	}
	for _, a := range i.addrs {
		if slices.Contains(n.gids, a) {
			continue
		}
		changed = true
		if at := slices.Index(n.gids, netip.Addr{}); at >= 0 {
			n.gids[at] = a
		} else if len(n.gids) < gidTableSize {
			n.gids = append(n.gids, a)
		}
	}
	return changed
}

// update calls set and reports changes as events.
func (n *nic) update(i netif) {
	was := n.up
	changed := n.set(i)
	switch {
	case was && !n.up:
		n.notify(verbs.AsyncEvent{Kind: verbs.EventPortDown, Port: onlyPort})
	case !was && n.up:
		n.notify(verbs.AsyncEvent{Kind: verbs.EventPortActive, Port: onlyPort})
	}
	if changed {
		n.notify(verbs.AsyncEvent{Kind: verbs.EventGIDChange, Port: onlyPort})
	}
}

// remove handles the disappearance of the interface.
func (n *nic) remove() {
	n.gone = true
	n.notify(verbs.AsyncEvent{Kind: verbs.EventDeviceFatal})
	for d := range n.open {
		go d.markGone()
	}
}

func (n *nic) notify(e verbs.AsyncEvent) {
	for d := range n.open {
		d.Event(e)
	}
}

func (n *nic) info() verbs.DeviceInfo {
	return verbs.DeviceInfo{
		Name: n.name, NodeGUID: n.guid(), Firmware: "user space", Ports: onlyPort, GoMemory: true, Windows: true, Limits: limits(),
	}
}

// guid returns the EUI-64 of the MAC address (RFC 4291, appendix A), or one made of the
// interface's index if it has no MAC address.
func (n *nic) guid() uint64 {
	if len(n.mac) != 6 || slices.Max(n.mac) == 0 {
		return 0x0200_0000_0000_0000 | uint64(n.index) //nolint:gosec // small
	}
	m := n.mac
	return binary.BigEndian.Uint64([]byte{m[0] ^ 2, m[1], m[2], 0xff, 0xfe, m[3], m[4], m[5]})
}

func (n *nic) port() verbs.PortInfo {
	p := verbs.PortInfo{
		State: verbs.PortDown, Link: verbs.LinkEthernet, ActiveMTU: mtuOf(n.mtu), MaxMTU: verbs.MTU4096,
		MaxMessage: maxMessage, GIDs: gidTableSize, PKeys: 1,
	}
	if n.up {
		p.State = verbs.PortActive
	}
	return p
}

func (n *nic) table() (list []verbs.GIDEntry) {
	for i, a := range n.gids {
		if a.IsValid() {
			list = append(list, verbs.GIDEntry{Index: i, GID: verbs.GIDFromAddr(a), Type: verbs.GIDTypeRoCEv2})
		}
	}
	return list
}

// mtuOf returns the largest path MTU whose packets fit into frames of an interface's
// MTU. The kernel's rxe reserves the same 80 bytes for headers (rxe_param.h).
func mtuOf(mtu int) verbs.MTU {
	for _, m := range []verbs.MTU{verbs.MTU4096, verbs.MTU2048, verbs.MTU1024, verbs.MTU512} {
		if int(m) <= mtu-frameOverhead {
			return m
		}
	}
	return verbs.MTU256
}
