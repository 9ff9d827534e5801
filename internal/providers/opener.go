package providers

import (
	"errors"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

// Opener is a provider with its row.
type Opener struct {
	verbs.Provider
	Row Row
}

// Opener returns the provider of the row.
func (r Row) Opener(o Options) Opener { return Opener{r.New(o), r} }

// OpenerOf returns a provider as an Opener, with the row for its name.
func OpenerOf(p verbs.Provider) Opener {
	row, _ := Of(p.Name())
	return Opener{p, row}
}

// Inventory lists the devices, before one is opened.
func (s Opener) Inventory() (discovery.Inventory, error) {
	if s.Row.Inventory != nil {
		return s.Row.Inventory(s.Provider)
	}
	return onInterfaces(s.Provider, "", nil)
}

// hostInventory lists the RDMA devices of the kernel.
func hostInventory() (discovery.Inventory, error) {
	host, err := discovery.Host()
	if err != nil {
		return discovery.Inventory{}, err
	}
	return host.Read()
}

// onInterfaces lists the devices of a provider as they describe themselves: /sys knows nothing about
// devices that are not the kernel's. netdevOf returns the network interface of a device; nil if the
// devices have none.
func onInterfaces(p verbs.Provider, driver string, netdevOf func(device string) (string, bool)) (discovery.Inventory, error) {
	infos, err := p.Devices()
	if err != nil {
		return discovery.Inventory{}, err
	}
	var inv discovery.Inventory
	if netdevOf != nil {
		if inv.Netdevs, err = discovery.Interfaces(); err != nil {
			inv.Problems = append(inv.Problems, err)
		}
	}
	for _, info := range infos {
		d := discovery.Device{Name: info.Name, NodeGUID: info.NodeGUID, NodeType: discovery.NodeCA, Firmware: info.Firmware, NUMA: -1}
		netdev := ""
		if netdevOf != nil {
			if name, ok := netdevOf(info.Name); ok {
				d.Driver, netdev = driver, name
			}
		}
		if d.Ports, err = ports(p, info, netdev); err != nil {
			d.Problems = append(d.Problems, err)
		}
		inv.Devices = append(inv.Devices, d)
	}
	return inv, nil
}

func ports(p verbs.Provider, info verbs.DeviceInfo, netdev string) (ports []discovery.Port, err error) {
	device, err := p.Open(info.Name)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, device.Close()) }()
	for number := uint8(1); number <= info.Ports; number++ {
		state, err := device.Port(number)
		if err != nil {
			return ports, err
		}
		table, err := device.GIDs(number)
		if err != nil {
			return ports, err
		}
		port := discovery.Port{
			Number: number, State: state.State, Link: state.Link, LID: state.LID, ActiveMTU: state.ActiveMTU, TableSize: state.GIDs, Netdev: netdev,
		}
		for _, g := range table {
			port.GIDs = append(port.GIDs, discovery.GID{GIDEntry: g, Netdev: netdev})
		}
		ports = append(ports, port)
	}
	return ports, nil
}
