package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/discovery"
	"github.com/tryst-rdma/tryst/verbs/roce"
)

// Source is a provider with what is known of its devices before one is open.
type Source struct {
	verbs.Provider
	// Kernel says that the devices are the kernel's.
	Kernel bool
	// Inventory lists them.
	Inventory func() (discovery.Inventory, error)
}

// KernelSource has the devices of the kernel, by libibverbs.
func KernelSource() Source {
	return Source{Provider: libibverbs.New(libibverbs.Options{}), Kernel: true, Inventory: hostInventory}
}

// RoCESource has the devices in software. Its log tells what the kernel refused to
// their sockets.
func RoCESource(log *slog.Logger) Source {
	return sourceOf(roce.New(roce.Options{Logger: log}))
}

// sourceOf is a provider whose devices tell of themselves.
func sourceOf(p verbs.Provider) Source {
	return Source{Provider: p, Inventory: func() (discovery.Inventory, error) { return providerInventory(p) }}
}

// Selection is the device that a process uses.
type Selection struct {
	Source
	// Why is why the provider.
	Why    string
	Device verbs.Device
	Choice discovery.Choice
	// Unused is why the devices of the kernel, which are there, are not used.
	Unused error
}

// Select opens a device by the setting provider: by its name, or the first of the
// two that has one. What is wanted of the device goes for both, the address by which
// peers reach the process (discovery.Want.LocalAddr) for devices in software alone: they
// are on every network, and RDMA ports on one that is made for them.
func Select(provider string, want discovery.Want, kernel, software Source) (Selection, error) {
	beside := want
	beside.LocalAddr, beside.LocalAddrWhy = netip.Addr{}, ""
	switch provider {
	case config.ProviderLibibverbs:
		s, _, err := kernel.open(beside)
		s.Why = chosenBySetting
		return s, err
	case config.ProviderRoCE:
		s, _, err := software.open(want)
		s.Why = chosenBySetting
		return s, err
	}
	s, there, err := kernel.open(beside)
	s.Why = Auto(err)
	if err == nil {
		return s, nil
	}
	s, _, errSoftware := software.open(want)
	if errSoftware != nil {
		return Selection{}, &noDeviceError{err, errSoftware}
	}
	s.Why = Auto(err)
	if there {
		s.Unused = err
	}
	return s, nil
}

const chosenBySetting = "it was asked for"

// Auto is why the provider auto is what it is: libibverbs when its error is nil.
func Auto(kernel error) string {
	if kernel == nil {
		return "auto: an RDMA port is active"
	}
	return "auto: " + kernel.Error()
}

// nowhere says why neither provider has a device.
type noDeviceError struct{ kernel, software error }

func (e *noDeviceError) Error() string {
	return fmt.Sprintf("%v; and %s: %v", e.kernel, config.ProviderRoCE, e.software)
}

func (e *noDeviceError) Unwrap() []error { return []error{e.kernel, e.software} }

// open chooses among the devices and opens the choice; there says that there are
// some.
func (s Source) open(want discovery.Want) (_ Selection, there bool, err error) {
	inv, err := s.Inventory()
	if err != nil {
		return Selection{}, false, err
	}
	there = len(inv.Devices) > 0
	choice, err := discovery.Choose(inv, want)
	if err != nil {
		return Selection{}, there, err
	}
	device, err := s.Open(choice.Device)
	if err != nil {
		return Selection{}, there, err
	}
	info, err := device.Port(choice.Port)
	if err == nil {
		choice.MTU, err = discovery.PathMTU(want.MTU, info.ActiveMTU)
	}
	if err != nil {
		return Selection{}, there, errors.Join(err, device.Close())
	}
	return Selection{Source: s, Device: device, Choice: choice}, there, nil
}

// The waits for an acknowledgement that are taken where none is set, by the codes
// 14 and 16. With the six retries a NIC notices a dead peer after half a second; a
// device in software shares its processors, and gets two.
const (
	ackTimeout         = 67 * time.Millisecond
	softwareAckTimeout = 268 * time.Millisecond
)

// timeoutOf is the setting rdma.timeout for a provider.
func timeoutOf(set time.Duration, p verbs.Provider) time.Duration {
	switch {
	case set != 0:
		return set
	case p.Name() == roce.Name:
		return softwareAckTimeout
	}
	return ackTimeout
}

// The queue pairs for each peer that are taken where none are set. rxe leaves
// processors idle over one, and a fabric may take two different ways (GOTCHAS.md). The
// device in user space is slower over two.
const (
	DefaultQueuePairs  = 2
	softwareQueuePairs = 1
)

// queuePairsOf is the setting rdma.queue-pairs for a provider.
func queuePairsOf(set int, p verbs.Provider) int {
	switch {
	case set != 0:
		return set
	case p.Name() == roce.Name:
		return softwareQueuePairs
	}
	return DefaultQueuePairs
}

func hostInventory() (discovery.Inventory, error) {
	host, err := discovery.Host()
	if err != nil {
		return discovery.Inventory{}, err
	}
	return host.Read()
}

// providerInventory is what a provider's devices say of themselves: of one that
// is not the kernel's the host knows the network interfaces at most.
func providerInventory(p verbs.Provider) (discovery.Inventory, error) {
	infos, err := p.Devices()
	if err != nil {
		return discovery.Inventory{}, err
	}
	var inv discovery.Inventory
	if p.Name() == roce.Name {
		if inv.Netdevs, err = netdevs(); err != nil {
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

// netdevs are the network interfaces of this host.
func netdevs() ([]discovery.Netdev, error) {
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
			continue // it has gone meanwhile
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
