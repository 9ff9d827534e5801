// Package devices opens the devices that a process uses for verbs.
//
//	Finder  the RDMA device: of the kernel or in user space, or what the program passes. It may go,
//	        come back, and be replaced by a better one.
//	Fixed   devices over TCP and shared memory, which stay from the start to the end
//
// The providers come from the table in internal/providers.
package devices

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
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

	row providers.Row // of Provider
}

// RDMAOpeners returns the openers of RDMA devices that may be used, in the order in which auto tries them.
func RDMAOpeners(rows []providers.Row, takes func(provider string) bool, o providers.Options) (all []providers.Opener) {
	for _, row := range providers.Preferred(rows) {
		if row.RDMA() && takes(row.Name) {
			all = append(all, row.Opener(o))
		}
	}
	return all
}

// Select opens a device of the first opener that has a usable one. Several openers mean that the setting
// provider is auto, or names them all. want holds for each. Only its LocalAddr is ignored for the
// kernel's devices: those in user space are on every network interface, but RDMA ports often have a
// network of their own, by which peers do not dial.
func Select(want discovery.Want, openers ...providers.Opener) (Selection, error) {
	var before, unused error
	for i, opener := range openers {
		want := want
		if opener.Row.Kernel {
			want.LocalAddr, want.LocalAddrWhy = netip.Addr{}, ""
		}
		s, exist, err := open(opener, want)
		switch {
		case err == nil && len(openers) == 1:
			s.Why = chosenBySetting
			return s, nil
		case err == nil:
			s.Why, s.Unused = worksHere, unused
			if i > 0 || opener.Row.Kernel {
				s.Why = Auto(before)
			}
			return s, nil
		case i > 0:
			before = &noDeviceError{before, opener.Row.Name, err}
		default:
			before = err
		}
		if exist && opener.Row.Kernel {
			unused = err
		}
	}
	return Selection{}, before
}

// Why a provider was chosen.
const (
	chosenBySetting = "the setting provider names it"
	worksHere       = "auto: it works here"
)

// Auto returns the reason for the provider that auto chose, given the error of the kernel's
// devices. Nil means that auto chose these.
func Auto(kernel error) string {
	if kernel == nil {
		return "auto: an RDMA port is active"
	}
	return "auto: " + kernel.Error()
}

// noDeviceError has the reasons why a provider and those tried before it have no usable device.
type noDeviceError struct {
	before error
	name   string
	err    error
}

func (e *noDeviceError) Error() string { return fmt.Sprintf("%v; and %s: %v", e.before, e.name, e.err) }

func (e *noDeviceError) Unwrap() []error { return []error{e.before, e.err} }

// waits reports whether a search failed because a port that was meant has no link or address
// yet.
func waits(err error) bool {
	if e := (*noDeviceError)(nil); errors.As(err, &e) {
		return waits(e.before) || waits(e.err)
	}
	e := (*discovery.NoChoice)(nil)
	return errors.As(err, &e) && e.Waits
}

// open chooses one of the devices and opens it. exist reports whether there are any.
func open(s providers.Opener, want discovery.Want) (_ Selection, exist bool, err error) {
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
	return Selection{Provider: s.Provider, Kernel: s.Row.Kernel, Device: device, Choice: choice, row: s.Row}, exist, nil
}
