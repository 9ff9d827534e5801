package server

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
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
	return sourceOf(roce.New(roce.Options{Logger: log}))
}

// sourceOf returns a source whose inventory comes from the devices themselves.
func sourceOf(p verbs.Provider) Source {
	return Source{Provider: p, Inventory: func() (discovery.Inventory, error) { return providerInventory(p) }}
}

// Selection is the device that a process uses.
type Selection struct {
	Source
	// Why is the reason for the provider.
	Why    string
	Device verbs.Device
	Choice discovery.Choice
	// Unused is the reason why the existing devices of the kernel are not used.
	Unused error
}

// Select opens a device of the provider that the setting provider names, or with auto of
// the first of the two that has a usable one. want holds for both. Only its LocalAddr is
// ignored for the kernel's devices: those of roce are on every network interface, but RDMA
// ports often have a network of their own, by which peers do not dial.
func Select(provider string, want discovery.Want, kernel, software Source) (Selection, error) {
	kernelWant := want
	kernelWant.LocalAddr, kernelWant.LocalAddrWhy = netip.Addr{}, ""
	switch provider {
	case config.ProviderLibibverbs:
		s, _, err := kernel.open(kernelWant)
		s.Why = chosenBySetting
		return s, err
	case config.ProviderRoCE:
		s, _, err := software.open(want)
		s.Why = chosenBySetting
		return s, err
	}
	s, exist, err := kernel.open(kernelWant)
	s.Why = Auto(err)
	if err == nil {
		return s, nil
	}
	s, _, errSoftware := software.open(want)
	if errSoftware != nil {
		return Selection{}, &noDeviceError{err, errSoftware}
	}
	s.Why = Auto(err)
	if exist {
		s.Unused = err
	}
	return s, nil
}

const chosenBySetting = "the setting provider names it"

// Auto returns the reason for the provider that auto chose, given the error of the kernel's
// devices. Nil means that auto chose libibverbs.
func Auto(kernel error) string {
	if kernel == nil {
		return "auto: an RDMA port is active"
	}
	return "auto: " + kernel.Error()
}

// noDeviceError has the reasons why neither provider has a usable device.
type noDeviceError struct{ kernel, software error }

func (e *noDeviceError) Error() string {
	return fmt.Sprintf("%v; and %s: %v", e.kernel, config.ProviderRoCE, e.software)
}

func (e *noDeviceError) Unwrap() []error { return []error{e.kernel, e.software} }

// waits reports whether a search failed because a port that was meant has no link or address
// yet.
func waits(err error) bool {
	if e := (*noDeviceError)(nil); errors.As(err, &e) {
		return waits(e.kernel) || waits(e.software)
	}
	e := (*discovery.NoChoice)(nil)
	return errors.As(err, &e) && e.Waits
}

// open chooses one of the devices and opens it. exist reports whether there are any.
func (s Source) open(want discovery.Want) (_ Selection, exist bool, err error) {
	inv, err := s.Inventory()
	if err != nil {
		return Selection{}, false, err
	}
	exist = len(inv.Devices) > 0
	choice, err := discovery.Choose(inv, want)
	if err != nil {
		return Selection{}, exist, err
	}
	device, err := s.Open(choice.Device)
	if err != nil {
		return Selection{}, exist, err
	}
	info, err := device.Port(choice.Port)
	if err == nil {
		choice.MTU, err = discovery.PathMTU(want.MTU, info.ActiveMTU)
	}
	if err != nil {
		return Selection{}, exist, errors.Join(err, device.Close())
	}
	return Selection{Source: s, Device: device, Choice: choice}, exist, nil
}

// The defaults of rdma.timeout: codes 14 and 16 of the specification. With six retries a NIC
// detects a dead peer after half a second. A device in user space shares the processors with the
// program, so it gets two seconds.
const (
	ackTimeout         = 67 * time.Millisecond
	softwareAckTimeout = 268 * time.Millisecond
)

// timeoutOf returns the setting rdma.timeout, or the default of the provider.
func timeoutOf(set time.Duration, p verbs.Provider) time.Duration {
	switch {
	case set != 0:
		return set
	case p.Name() == roce.Name, p.Name() == tcp.Name, p.Name() == shm.Name:
		return softwareAckTimeout
	}
	return ackTimeout
}

// The defaults of rdma.queue-pairs. With one queue pair rxe uses one processor, and a fabric one
// path (GOTCHAS.md). The device in user space is slower with two.
const (
	DefaultQueuePairs  = 2
	softwareQueuePairs = 1
)

// queuePairsOf returns the setting rdma.queue-pairs, or the default of the provider.
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

// providerInventory lists the devices of a provider as they describe themselves. /sys knows
// nothing about devices that are not the kernel's.
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

// netdevs returns the network interfaces of this host.
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
