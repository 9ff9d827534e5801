// Package devices opens the devices that a process uses for verbs.
//
//	Finder  the RDMA device: of the kernel (libibverbs) or in software (roce), or what the program
//	        passes. It may go, come back, and be replaced by a better one.
//	Fixed   devices over TCP and shared memory, which stay from the start to the end
package devices

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/verbs"
)

// Selection is the device that a process uses.
type Selection struct {
	verbs.Provider
	// Kernel reports whether the device belongs to the kernel.
	Kernel bool
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
	return Selection{Provider: s.Provider, Kernel: s.Kernel, Device: device, Choice: choice}, exist, nil
}
