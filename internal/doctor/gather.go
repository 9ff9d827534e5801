package doctor

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/server"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// Options are the sources of Gather.
type Options struct {
	// Client has the settings: the device, the memory limits, the cluster and how
	// to dial its tasks. With the transport verbs, missing RDMA is a FAIL; with auto it is in order.
	Client server.Config
	// Settings are the settings of RDMA that are not the defaults. The report
	// lists them with their sources.
	Settings []config.Entry
	// Self is this task, which is not dialed; nil: all tasks are.
	Self *cluster.Task

	// System has the RDMA devices of the kernel; NoSystem is why it is not available.
	System   discovery.System
	NoSystem error
	// Memlock returns how much memory may be locked; nil: not known.
	Memlock func() (verbstransport.Memlock, error)
	// Provider lists its devices and opens the chosen one; nil: this is not checked.
	Provider verbs.Provider
	// Software has the devices in user space; nil: they are not checked. Sockets
	// checks which sockets the kernel provides for an address; nil: not checked.
	Software *providers.Opener
	Sockets  func(netip.Addr) Sockets
	// LocalAddr is the address by which peers reach a process with these settings, and
	// LocalAddrWhy the reason for it (server.LocalAddr); zero: not known.
	LocalAddr    netip.Addr
	LocalAddrWhy string
	// From is the address of a server that is reached instead of the cluster; "": none.
	From string
	// Select opens the device that a process with these settings takes; nil: it is derived
	// from the other sources.
	Select func(context.Context) (server.Selection, error)
	// ReachVerbs reaches a peer by RDMA, and describes the result; nil: not tried. The task
	// is zero if only the address is known.
	ReachVerbs func(ctx context.Context, task cluster.Task, address string) Reached
	// Fixed are the devices that are no RDMA and that the settings allow.
	Fixed []FixedOpener
	// Rows are the providers; nil: those of this build.
	Rows []providers.Row
	// Measure also measures the bandwidth of each route, by a pull.
	Measure bool
}

// FixedOpener opens a device over TCP or shared memory.
type FixedOpener struct {
	Provider string
	// Check opens the device and closes it, and returns its name.
	Check func() (device string, err error)
	// Reach is as Options.ReachVerbs.
	Reach func(ctx context.Context, task cluster.Task, address string) Reached
}

// OnThisHost sets the sources of this host. Peers are reached by RDMA unless the transport is grpc.
func (o Options) OnThisHost() Options {
	o.System, o.NoSystem = discovery.Host()
	o.Memlock = verbstransport.ReadMemlock
	if o.Rows == nil {
		o.Rows = providers.All()
	}
	if i := slices.IndexFunc(o.Rows, func(p providers.Row) bool { return p.Kernel }); i >= 0 {
		o.Provider = o.Rows[i].New(providers.Options{})
	}
	if row, ok := providers.In(o.Rows, softwareProvider); ok {
		software := row.Opener(providers.Options{})
		o.Software, o.Sockets = &software, hostSockets
	}
	fabric := o.Client
	fabric.Provider = o.providers().FabricOnly()
	verbs := transportOf(o.Client) != server.TransportGRPC
	if verbs && fabric.Provider != "" {
		o.ReachVerbs = ReachVerbs(fabric, server.Options{}, o.Measure)
	}
	for _, row := range o.Rows {
		if row.RDMA() || !o.providers().Takes(row.Name) {
			continue
		}
		only := o.Client
		only.Provider, only.RDMA.Device = row.Name, "" // the device is another provider's
		fixed := providers.Options{Directory: o.Client.SHMDir, Trusted: certificates.Protection(certificates.Files(o.Client.TLS), true) == verbstransport.MutualTLS, Logger: slog.New(slog.DiscardHandler)}
		s := FixedOpener{Provider: row.Name, Check: func() (string, error) { return devices.CheckFixed(row, fixed) }}
		if verbs {
			s.Reach = ReachVerbs(only, server.Options{}, o.Measure)
		}
		o.Fixed = append(o.Fixed, s)
	}
	return o
}

// TakesRDMA reports whether a process with these settings takes an RDMA device.
func (o *Options) TakesRDMA() bool { return o.providers().Fabric() != "" }

// providers returns the providers that the settings allow.
func (o *Options) providers() config.ProviderSet {
	c := &o.Client
	return config.NewProviderSet(c.Provider, c.SHM).ForTransport(c.Transport, c.RDMA.Device, c.TLS != server.TLS{})
}

// checkFixed checks the devices that are no RDMA. It keeps those that can be used in o.
func checkFixed(o *Options) (all []FixedDevice) {
	var usable []FixedOpener
	for _, s := range o.Fixed {
		found := FixedDevice{Provider: s.Provider, Named: o.providers().Names(s.Provider)}
		if found.Device, found.Err = s.Check(); found.Err == nil {
			usable = append(usable, s)
		}
		all = append(all, found)
	}
	o.Fixed = usable
	return all
}

// namesUserSpace reports whether the setting provider names RDMA in user space.
func namesUserSpace(f Facts, c config.ProviderSet) bool {
	return slices.ContainsFunc(f.rows(), func(p providers.Row) bool { return f.inUserSpace(p.Name) && c.Names(p.Name) })
}

// wanted converts the settings for the choice of a device.
func wanted(c server.RDMA) discovery.Want {
	return discovery.Want{Device: c.Device, Port: uint8(c.Port), GIDIndex: c.GIDIndex, MTU: verbs.MTU(c.MTU), ServiceLevel: uint8(c.ServiceLevel)}
}

// Gather reads the facts. If ctx ends, it returns those that it has. It waits for each peer for
// at most dialTimeout and probeTimeout.
func Gather(ctx context.Context, o Options) Facts {
	registered := o.Client.WithDefaults().RDMA
	f := Facts{
		NoFallback: o.Client.Fallback == server.FallbackNone, Provider: o.providers().Fabric(), Rows: o.Rows, Want: wanted(o.Client.RDMA),
		// One pool to send and one to receive.
		RegisterLeast: 2 * uint64(registered.Arena), RegisterMost: 2 * uint64(registered.ArenaLimit), Messages: server.MessageMemory(o.Client),
	}
	transport := transportOf(o.Client)
	f.Auto = transport == server.TransportAuto && !f.NoFallback
	f.Required = transport != server.TransportGRPC && !f.Auto
	f.NamesUserSpace = namesUserSpace(f, o.providers())
	f.NoDiscovery, f.Settings = o.NoSystem, o.Settings
	f.TrafficClass = uint8(o.Client.RDMA.TrafficClass) //nolint:gosec // a limit of the setting
	if f.NoDiscovery == nil {
		f.Inventory, f.NoDiscovery = o.System.Read()
	}
	if o.Select != nil {
		f.Selected = selectDevice(ctx, o)
	}
	if f.NoDiscovery == nil {
		f.Kernel = o.System.Kernel(f.Inventory)
		f.Choice, f.NoChoice = discovery.Choose(f.Inventory, f.Want)
		if f.row(f.Selected.Provider).Kernel && f.Selected.Err == nil {
			f.Choice, f.NoChoice = f.Selected.Choice, nil
		}
		f.HugePages = hugePages(o.System.Sys)
		if f.NoChoice == nil {
			f.Counters, f.NoCounters = o.System.Counters(f.Choice.Device, f.Choice.Port)
			if pfc, err := o.System.PFC(f.Choice.Netdev); err == nil && f.Choice.Netdev != "" {
				f.PFC = &pfc // most drivers do not report it
			}
			f.ECN = ecn(o.System.Sys, f.Choice.Netdev)
		}
	}
	f.NoMemlock = errors.New("this system does not report it")
	if o.Memlock != nil {
		f.Memlock, f.NoMemlock = o.Memlock()
	}
	if o.Provider != nil {
		f.Library = openLibrary(o.Provider, f)
	}
	if o.Software != nil {
		f.Software = chooseSoftware(o, f.Want, f.Selected)
	}
	if provider, _ := f.uses(); provider == "" && (f.Library.Asked || f.Selected.Asked) {
		o.ReachVerbs = nil // without a usable device no peer can be reached; the report has the reason
	}
	f.Fixed = checkFixed(&o)
	f.Peers = reachPeers(ctx, o)
	return f
}

// transportOf returns the setting transport, or its default.
func transportOf(c server.Config) string { return cmp.Or(c.Transport, config.DefaultTransport) }

// selectDevice selects the device as a process does.
func selectDevice(ctx context.Context, o Options) Selected {
	s, err := o.Select(ctx)
	if err != nil {
		return Selected{Asked: true, Err: err}
	}
	return Selected{Asked: true, Provider: s.Name(), Why: s.Why, Choice: s.Choice, Err: s.Device.Close()}
}

// openLibrary lists the devices of a provider, and opens the chosen one to read its port.
func openLibrary(p verbs.Provider, f Facts) Library {
	l := Library{Asked: true}
	if l.Devices, l.Err = p.Devices(); l.Err != nil || f.NoDiscovery != nil || f.NoChoice != nil {
		return l
	}
	dev, err := p.Open(f.Choice.Device)
	if err != nil {
		l.OpenErr = err
		return l
	}
	l.Port, l.OpenErr = dev.Port(f.Choice.Port)
	if err := dev.Close(); err != nil && l.OpenErr == nil {
		l.OpenErr = err
	}
	return l
}
