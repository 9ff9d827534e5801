package doctor

import (
	"fmt"
	"strings"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

func (e *examiner) devices() {
	f := e.facts
	if f.NoDiscovery != nil {
		return
	}
	if len(f.Inventory.Devices) == 0 && f.Kernel.Core {
		e.absent("devices", loadSoftRoCE, "the kernel has no RDMA device")
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
			do := "connect the cable, and check the port of the switch"
			switch {
			case p.Link == verbs.LinkInfiniBand && p.State != verbs.PortDown:
				do = "start a subnet manager on this fabric (opensm), or find out why its sweep skips this port"
			case p.Netdev != "":
				do = "ip link set " + p.Netdev + " up; then check the cable and the port of the switch"
			}
			e.warn(check, do, "%s", text)
		}
		for _, err := range d.Problems {
			e.warn(d.Name, doRead, "some facts could not be read: %v", err)
		}
	}
	for _, err := range f.Inventory.Problems {
		e.warn("devices", doRead, "some facts could not be read: %v", err)
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
			e.lacks(check, "fix what is reported about the port that you want, or name another one (--rdma-device, --rdma-port, --rdma-gid-index)", "%v", f.NoChoice)
		}
		return
	}
	e.chosenIs(check, f.Choice)
}

// chosenIs reports a choice, the reasons for it, and why the others were not chosen.
func (e *examiner) chosenIs(check string, c discovery.Choice) {
	e.ok(check, "%s: %s", c, c.Reason)
	if c.Understood != "" {
		e.ok(check, "%s", c.Understood)
	}
	for _, w := range c.Warnings {
		if c.Type == verbs.GIDTypeRoCEv1 && strings.Contains(w, c.Type.String()+":") {
			continue // the check "RoCE version" reports it
		}
		e.warn(check, "name another one with --rdma-device, --rdma-port or --rdma-gid-index, unless this is intended", "%s", w)
	}
	for _, r := range c.Against {
		e.ok(check, "%s is not taken: %s", r.What, r.Why)
	}
	if c.Type == verbs.GIDTypeRoCEv1 {
		e.warn("RoCE version", "choose a GID of RoCE v2 with --rdma-gid-index; without one, set the NIC to RoCE v2",
			"RoCE v1: it does not reach peers with RoCE v2, nor peers behind routers; those use gRPC")
	} else if c.Link == verbs.LinkEthernet {
		e.ok("RoCE version", "%s", c.Type)
	}
}

// chosen returns the chosen device, or nil.
func (e *examiner) chosen() *discovery.Device {
	if e.facts.NoChoice != nil || e.facts.NoDiscovery != nil {
		return nil
	}
	return e.facts.Inventory.Device(e.facts.Choice.Device)
}
