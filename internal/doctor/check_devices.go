package doctor

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

func (e *examiner) devices() {
	f := e.facts
	if f.NoDiscovery != nil {
		return
	}
	if len(f.Inventory.Devices) == 0 && f.Kernel.Core {
		e.lacks("devices", loadSoftRoCE, "the kernel has no RDMA device")
	}
	for _, d := range f.Inventory.Devices {
		for _, p := range d.Ports {
			check := fmt.Sprintf("%s port %d", d.Name, p.Number)
			rate := p.Rate.Text
			if rate == "" {
				rate = "rate unknown"
			}
			text := fmt.Sprintf("%s, %s, %s, GIDs: %d", p.State, p.Link, rate, len(p.GIDs))
			if p.Netdev != "" {
				text += ", on " + p.Netdev
			}
			if d.Driver != "" {
				text += ", driver " + d.Driver
			}
			if d.NUMA >= 0 {
				text += fmt.Sprintf(", NUMA node %d", d.NUMA)
			}
			if p.State == verbs.PortActive || p.State == verbs.PortActiveDefer {
				e.ok(check, "%s", text)
				continue
			}
			do := "connect the cable, and look at the switch's port"
			switch {
			case p.Link == verbs.LinkInfiniBand && p.State != verbs.PortDown:
				do = "start a subnet manager on this fabric (opensm), or look why its sweep passes this port"
			case p.Netdev != "":
				do = "ip link set " + p.Netdev + " up; then the cable and the switch's port"
			}
			e.warn(check, do, "%s", text)
		}
		for _, err := range d.Problems {
			e.warn(d.Name, doRead, "not all could be read: %v", err)
		}
	}
	for _, err := range f.Inventory.Problems {
		e.warn("devices", doRead, "not all could be read: %v", err)
	}
}

func (e *examiner) choice() {
	f := e.facts
	if f.NoDiscovery != nil || !f.Kernel.Core {
		return
	}
	const check = "chosen"
	if f.NoChoice != nil {
		if len(f.Inventory.Devices) > 0 || f.Want != (discovery.Want{}) {
			e.lacks(check, "mend what is told of the port that you want, or ask for another (--rdma-device, --rdma-port, --rdma-gid-index)", "%v", f.NoChoice)
		}
		return
	}
	e.chosenIs(check, f.Choice)
}

// chosenIs tells a choice and what speaks for and against it.
func (e *examiner) chosenIs(check string, c discovery.Choice) {
	e.ok(check, "%s: %s", c, c.Reason)
	if c.Understood != "" {
		e.ok(check, "%s", c.Understood)
	}
	for _, w := range c.Warnings {
		if c.Type == verbs.GIDTypeRoCEv1 && strings.Contains(w, c.Type.String()+":") {
			continue // a check of its own, below
		}
		e.warn(check, "name another with --rdma-device, --rdma-port or --rdma-gid-index, unless it is meant so", "%s", w)
	}
	for _, r := range c.Against {
		e.ok(check, "not %s: %s", r.What, r.Why)
	}
	if c.Type == verbs.GIDTypeRoCEv1 {
		e.warn("RoCE version", "choose a GID of RoCE v2 with --rdma-gid-index; without one, set the NIC to RoCE v2",
			"RoCE v1: peers with RoCE v2 get gRPC, and no router is crossed")
	} else if c.Link == verbs.LinkEthernet {
		e.ok("RoCE version", "%s", c.Type)
	}
}

// chosen is the device of the choice, or nil.
func (e *examiner) chosen() *discovery.Device {
	if e.facts.NoChoice != nil || e.facts.NoDiscovery != nil {
		return nil
	}
	return e.facts.Inventory.Device(e.facts.Choice.Device)
}
