package doctor

import (
	"strings"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

func (e *examiner) mtu() {
	d := e.chosen()
	if d == nil {
		return
	}
	f, c := e.facts, e.facts.Choice
	const check = "MTU"
	active := verbs.MTU(0)
	if p := d.Port(c.Port); p != nil {
		active = p.ActiveMTU
	}
	if l := f.Library; l.Asked && l.Err == nil {
		if l.OpenErr != nil {
			text, do := hinted(l.OpenErr, "see the lines about its node and about libibverbs above")
			e.lacks("device", do, "%s cannot be opened: %s", c.Device, text)
		} else {
			if active != 0 && l.Port.ActiveMTU != active {
				e.warn(check, "if the MTU of the network device was just changed, set its link down and up", "the open port has %d, but %s with MTU %d should give %d",
					int(l.Port.ActiveMTU), c.Netdev, c.NetdevMTU, int(active))
			}
			active = l.Port.ActiveMTU
		}
	}
	if _, err := discovery.PathMTU(f.Want.MTU, active); err != nil {
		e.lacks(check, "lower --rdma-mtu, or raise the MTU of the network device", "%v", err)
		return
	}
	if c.Link == verbs.LinkEthernet {
		if p := d.Port(c.Port); p != nil {
			netdev, mtu := p.Netdev, c.NetdevMTU
			if n := f.Inventory.Netdev(netdev); n != nil {
				mtu = n.MTU
			}
			if mtu > 0 && discovery.MTUHint(netdev, mtu, d.Headers()) != "" {
				e.mtuOfNetdev(netdev, mtu, d.Headers())
				return
			}
		}
	}
	if active != 0 {
		e.ok(check, "the port's path MTU is %d", int(active))
	}
}

// mtuOfNetdev reports whether a larger MTU of a network device would help.
func (e *examiner) mtuOfNetdev(netdev string, mtu, headers int) {
	const check = "MTU"
	hint := discovery.MTUHint(netdev, mtu, headers)
	if hint == "" {
		e.ok(check, "the port's path MTU is %d", int(discovery.RoCEMTU(mtu, headers)))
		return
	}
	text, do, _ := strings.Cut(strings.TrimSuffix(hint, ")"), " (")
	e.warn(check, do, "%s", text)
}
