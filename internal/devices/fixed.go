package devices

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
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
	// Addresses are those at which peers dial the process, as "host:port"; none for one that only dials.
	Addresses []string
	// Dial connects to a peer for a queue pair over TCP.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Directory is where processes of this host meet for shared memory: the setting shm-dir. Trusted
	// reports whether mutual TLS proves their names.
	Directory string
	Trusted   bool
	// Sources have the devices; nil for those of this host.
	Sources []Source
	Logger  *slog.Logger
}

// sources returns o.Sources, or those of this host.
func (o *FixedOptions) sources() []Source {
	if o.Sources != nil {
		return o.Sources
	}
	return []Source{
		SourceOf(tcp.New(tcp.Options{Listen: o.Addresses, Dial: o.Dial, Logger: o.Logger})),
		SourceOf(shm.New(shm.Options{Dir: o.Directory, Trusted: o.Trusted, Logger: o.Logger})),
	}
}

// OpenFixed opens the devices that the settings allow. A device that the setting provider names must
// open. auto goes without those that do not, and logs why.
func OpenFixed(o FixedOptions) (*Fixed, error) {
	f := &Fixed{o: o}
	for _, s := range o.sources() {
		if !o.Takes(s.Name()) {
			continue
		}
		opened, err := openFixed(s)
		if err == nil {
			opened.Why = "auto: it works here"
			if o.Named(s.Name()) {
				opened.Why = chosenBySetting
			}
			f.all = append(f.all, opened)
			continue
		}
		if err := o.without(s.Name(), err); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	for _, s := range f.all {
		o.Logger.Info("verbs", "provider", s.Name(), "why", s.Why, "device", s.Choice.Device)
	}
	return f, nil
}

// without logs that a provider has no device. It returns an error if the settings need one.
func (o *FixedOptions) without(provider string, err error) error {
	wrong, isWrong := errors.AsType[*shm.DirError](err)
	switch {
	case isWrong:
		return status.Errorf(status.InvalidArgument, "shm-dir %s: %s", o.Directory, wrong.Why)
	case o.Named(provider):
		return status.Errorf(status.FailedPrecondition, "provider %s: %w", provider, err)
	case provider == config.ProviderShm && o.Directory != "":
		o.Logger.Warn("verbs: there is no shared memory with other processes, although shm-dir is set", "reason", err)
	default:
		o.Logger.Info("verbs: a provider cannot be used here", "provider", provider, "reason", err)
	}
	return nil
}

// CheckFixed opens the device of a provider and closes it. It returns the name of the device.
func CheckFixed(o FixedOptions, provider string) (device string, err error) {
	for _, s := range o.sources() {
		if s.Name() == provider {
			opened, err := openFixed(s)
			if err != nil {
				return "", err
			}
			return opened.Choice.Device, opened.Device.Close()
		}
	}
	return "", status.Errorf(status.InvalidArgument, "there is no provider %s", provider)
}

// openFixed opens the only device of a source.
func openFixed(s Source) (_ Selection, err error) {
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
	return Selection{Provider: s.Provider, Device: device, Choice: discovery.Choice{
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

// Stats returns the sums of the statistics of shared memory.
func (f *Fixed) Stats() (sum shm.Stats) {
	for _, s := range f.all {
		if p, ok := s.Provider.(*shm.Provider); ok {
			of := p.Stats()
			sum.Refused += of.Refused
			sum.Closing += of.Closing
		}
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
