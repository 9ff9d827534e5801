package server

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/status"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/shm"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// Devices beside that of the fabric: over TCP and over shared memory. Each is opened at the start
// and stays until the end. Neither has links that come and go.

// otherPort is the only port of these devices.
const otherPort = 1

// openOthers opens the devices of these kinds that the settings allow. A device that the setting
// provider names must open. auto goes without those that do not, and logs why.
func openOthers(c *config.Client, sources []Source, log *slog.Logger) (all []Selection, err error) {
	for _, s := range sources {
		name := s.Name()
		if !c.Takes(name) {
			continue
		}
		opened, err := openOther(s)
		switch {
		case err == nil:
			opened.Why = "auto: it works here"
			if c.Names(name) {
				opened.Why = chosenBySetting
			}
			all = append(all, opened)
		case wrongDir(err) != "":
			return nil, errors.Join(status.Errorf(status.InvalidArgument, "shm-dir %s: %s", c.SHMDir, wrongDir(err)), closeAll(all))
		case c.Names(name):
			err = status.Errorf(status.FailedPrecondition, "provider %s: %w", name, err)
			return nil, errors.Join(err, closeAll(all))
		case name == config.ProviderShm && c.SHMDir != "":
			log.Warn("verbs: there is no shared memory with other processes, although shm-dir is set", "reason", err)
		default:
			log.Info("verbs: a provider cannot be used here", "provider", name, "reason", err)
		}
	}
	for _, s := range all {
		log.Info("verbs", "provider", s.Name(), "why", s.Why, "device", s.Choice.Device)
	}
	return all, nil
}

// wrongDir says what is wrong with shm-dir; empty if err has another cause.
func wrongDir(err error) string {
	if e, ok := errors.AsType[*shm.DirError](err); ok {
		return e.Why
	}
	return ""
}

// CheckOther opens the device of config.ProviderTCP or config.ProviderShm, as a process with these settings
// does, and closes it. It returns the name of the
// device.
func CheckOther(c config.Client, provider string) (device string, err error) {
	for _, s := range otherSources(&c, Options{}, nodeConfig{}, slog.New(slog.DiscardHandler)) {
		if s.Name() == provider {
			opened, err := openOther(s)
			if err != nil {
				return "", err
			}
			return opened.Choice.Device, opened.Device.Close()
		}
	}
	return "", status.Errorf(status.InvalidArgument, "there is no provider %s", provider)
}

// openOther opens the only device of a source.
func openOther(s Source) (_ Selection, err error) {
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
	port, err := device.Port(otherPort)
	if err != nil {
		return Selection{}, errors.Join(err, device.Close())
	}
	gids, err := device.GIDs(otherPort)
	if err == nil && len(gids) == 0 {
		err = fmt.Errorf("%s has no address", infos[0].Name)
	}
	if err != nil {
		return Selection{}, errors.Join(err, device.Close())
	}
	return Selection{Source: s, Device: device, Choice: discovery.Choice{
		Device: infos[0].Name, Port: otherPort, GIDIndex: gids[0].Index, GID: gids[0].GID, Type: gids[0].Type,
		Link: port.Link, MTU: port.ActiveMTU, NUMA: -1, Near: true, Reason: "the only device of " + s.Name(),
	}}, nil
}

// closeAll closes devices.
func closeAll(all []Selection) error {
	var errs []error
	for _, s := range all {
		errs = append(errs, s.Device.Close())
	}
	return errors.Join(errs...)
}

// otherPorts are these devices as the transport takes them, with what peers need to reach them. The
// settings for the packets of a fabric have no meaning for them. addresses are those at which peers
// dial this process.
func otherPorts(all []Selection, c config.Client, addresses []string) []verbstransport.PortOptions {
	var ports []verbstransport.PortOptions
	for _, s := range all {
		p := portOptions(s, config.RDMA{Timeout: c.RDMA.Timeout, Retry: c.RDMA.Retry, QueuePairs: c.RDMA.QueuePairs})
		p.Again = nil // the address never changes
		switch s.Choice.Link {
		case verbs.LinkTCP:
			p.Addresses = addresses
		case verbs.LinkShared:
			p.Directory = discovery.Directory(c.SHMDir)
		}
		ports = append(ports, p)
	}
	return ports
}

// otherSources returns the sources of these devices. Those of o are for tests.
func otherSources(c *config.Client, o Options, nc nodeConfig, log *slog.Logger) []Source {
	if o.others != nil {
		return o.others
	}
	return []Source{
		sourceOf(tcp.New(tcp.Options{Listen: nc.addresses, Dial: nc.dial, Logger: log})),
		sourceOf(shm.New(shm.Options{Dir: c.SHMDir, Trusted: certificates.Protection(c.TLS, nc.listens()) == verbstransport.MutualTLS, Logger: log})),
	}
}
