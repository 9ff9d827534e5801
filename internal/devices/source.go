package devices

import (
	"errors"
	"log/slog"
	"net"
	"net/netip"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// Source is a provider with the inventory of its devices, which can be read before one is opened.
type Source struct {
	verbs.Provider
	// Kernel reports whether the devices belong to the kernel.
	Kernel bool
	// Inventory lists the devices.
	Inventory func() (discovery.Inventory, error)
}

// KernelSource has the RDMA devices of the kernel, through libibverbs.
func KernelSource() Source {
	return Source{Provider: libibverbs.New(libibverbs.Options{}), Kernel: true, Inventory: hostInventory}
}

// RoCESource has the devices in user space. They log which socket options the kernel
// refused.
func RoCESource(log *slog.Logger) Source {
	return SourceOf(roce.New(roce.Options{Logger: log}))
}

// SourceOf returns a source whose inventory comes from the devices themselves.
func SourceOf(p verbs.Provider) Source {
	return Source{Provider: p, Inventory: func() (discovery.Inventory, error) { return providerInventory(p) }}
}

func hostInventory() (discovery.Inventory, error) {
	host, err := discovery.Host()
	if err != nil {
		return discovery.Inventory{}, err
	}
	return host.Read()
}

// providerInventory lists the devices of a provider as they describe themselves. /sys knows
// nothing about devices that are not the kernel's.
func providerInventory(p verbs.Provider) (discovery.Inventory, error) {
	infos, err := p.Devices()
	if err != nil {
		return discovery.Inventory{}, err
	}
	var inv discovery.Inventory
	if p.Name() == roce.Name {
		if inv.Netdevs, err = Interfaces(); err != nil {
			inv.Problems = append(inv.Problems, err)
		}
	}
	for _, info := range infos {
		d := discovery.Device{Name: info.Name, NodeGUID: info.NodeGUID, NodeType: discovery.NodeCA, Firmware: info.Firmware, NUMA: -1}
		netdev, ofNetdev := roce.Interface(info.Name)
		if p.Name() == roce.Name && ofNetdev {
			d.Driver = roce.Name
		} else {
			netdev = ""
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

// Interfaces returns the network interfaces of this host.
func Interfaces() ([]discovery.Netdev, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	var list []discovery.Netdev
	for _, i := range all {
		n := discovery.Netdev{Name: i.Name, MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, State: "down"}
		if i.Flags&net.FlagRunning != 0 {
			n.State = "up"
		}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it was removed in the meantime
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				n.Addrs = append(n.Addrs, p)
			}
		}
		list = append(list, n)
	}
	return list, nil
}
