package devices

import (
	"errors"
	"fmt"
	"slices"

	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// fixedPort is the only port of a fixed device.
const fixedPort = 1

// Fixed are the devices over TCP and shared memory of a process. Each is opened at the start and stays
// until the end: neither has links that come and go, as RDMA devices have. The zero value has none.
type Fixed struct {
	o   FixedOptions
	all []Selection
}

// FixedOptions are the arguments of OpenFixed.
type FixedOptions struct {
	// Takes reports whether devices of a provider may be used, and Named whether the settings name it.
	Takes, Named func(provider string) bool
	// Timeout, Retry and QueuePairs of the settings apply to queue pairs of these devices, too.
	Settings RDMA
	// Rows are the providers; those of RDMA do not count.
	Rows []providers.Row
	// Options are those of the providers.
	providers.Options
}

// OpenFixed opens the devices that the settings allow. A device that the setting provider names must
// open. auto goes without those that do not, and logs why. Of two providers for one link layer it
// takes the first that works.
func OpenFixed(o FixedOptions) (*Fixed, error) {
	f := &Fixed{o: o}
	for _, row := range o.Rows {
		if row.RDMA() || !o.Takes(row.Name) || !o.Named(row.Name) && f.has(row.Link) {
			continue
		}
		opened, err := openFixed(row.Opener(o.Options))
		if err == nil {
			opened.Why = worksHere
			if o.Named(row.Name) {
				opened.Why = chosenBySetting
			}
			f.all = append(f.all, opened)
			continue
		}
		if err := o.without(row, err); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	for _, s := range f.all {
		o.Logger.Info("verbs", "provider", s.Name(), "why", s.Why, "device", s.Choice.Device)
	}
	return f, nil
}

// has reports whether a device with a link layer is open.
func (f *Fixed) has(link verbs.LinkLayer) bool {
	return slices.ContainsFunc(f.all, func(s Selection) bool { return s.Choice.Link == link })
}

// without logs that a provider has no device. It returns an error if the settings need one.
func (o *FixedOptions) without(p providers.Row, err error) error {
	if p.WrongSetting != nil {
		if wrong := p.WrongSetting(o.Options, err); wrong != nil {
			return wrong
		}
	}
	switch {
	case o.Named(p.Name):
		return status.Errorf(status.FailedPrecondition, "provider %s: %w", p.Name, err)
	case p.Local() && o.Directory != "":
		o.Logger.Warn("verbs: there is no shared memory with other processes, although shm-dir is set", "reason", err)
	default:
		o.Logger.Info("verbs: a provider cannot be used here", "provider", p.Name, "reason", err)
	}
	return nil
}

// CheckFixed opens the device of a provider and closes it. It returns the name of the device.
func CheckFixed(p providers.Row, o providers.Options) (device string, err error) {
	opened, err := openFixed(p.Opener(o))
	if err != nil {
		return "", err
	}
	return opened.Choice.Device, opened.Device.Close()
}

// openFixed opens the only device of a provider.
func openFixed(s providers.Opener) (_ Selection, err error) {
	infos, err := s.Devices()
	if err != nil {
		return Selection{}, err
	}
	if len(infos) == 0 {
		return Selection{}, &verbs.Error{Op: "open a device of " + s.Name(), Err: verbs.ErrUnavailable}
	}
	device, err := s.Open(infos[0].Name)
	if err != nil {
		return Selection{}, err
	}
	port, err := device.Port(fixedPort)
	if err != nil {
		return Selection{}, errors.Join(err, device.Close())
	}
	gids, err := device.GIDs(fixedPort)
	if err == nil && len(gids) == 0 {
		err = fmt.Errorf("%s has no address", infos[0].Name)
	}
	if err != nil {
		return Selection{}, errors.Join(err, device.Close())
	}
	return Selection{Provider: s.Provider, Device: device, row: s.Row, Choice: discovery.Choice{
		Device: infos[0].Name, Port: fixedPort, GIDIndex: gids[0].Index, GID: gids[0].GID, Type: gids[0].Type,
		Link: port.Link, MTU: port.ActiveMTU, NUMA: -1, Near: true, Reason: "the only device of " + s.Name(),
	}}, nil
}

// Devices returns the devices that are open.
func (f *Fixed) Devices() []Selection { return f.all }

// Ports returns the devices as the transport takes them, with what peers need to reach them.
func (f *Fixed) Ports() []verbstransport.PortOptions {
	var ports []verbstransport.PortOptions
	for _, s := range f.all {
		p := portOptions(s, RDMA{Timeout: f.o.Settings.Timeout, Retry: f.o.Settings.Retry, QueuePairs: f.o.Settings.QueuePairs})
		p.Again = nil // the address never changes
		switch s.Choice.Link {
		case verbs.LinkTCP:
			p.Addresses = f.o.Addresses
		case verbs.LinkShared:
			p.Directory = discovery.Directory(f.o.Directory)
		}
		ports = append(ports, p)
	}
	return ports
}

// Metric returns the sum of a number that the providers of these devices count.
func (f *Fixed) Metric(m providers.Metric) (sum float64) {
	for _, s := range f.all {
		sum += m.Read(s.Provider)
	}
	return sum
}

// Close closes the devices.
func (f *Fixed) Close() error {
	var errs []error
	for _, s := range f.all {
		errs = append(errs, s.Device.Close())
	}
	return errors.Join(errs...)
}
