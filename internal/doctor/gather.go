package doctor

import (
	"context"
	"errors"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/server"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
	libibverbs "github.com/tryst-rdma/tryst/verbs/cgo"
	"github.com/tryst-rdma/tryst/verbs/discovery"
)

// Options say what Gather looks for, and where.
type Options struct {
	// Client has the settings: which device, how much memory, the cluster and
	// how its tasks are dialed. With the transport verbs what RDMA lacks is a
	// FAIL.
	Client config.Client
	// Settings are those of RDMA that are not the defaults, to be told with
	// where they come from.
	Settings []config.Entry
	// Self is this task, which is not asked; nil: all are.
	Self *cluster.Task

	// System is where RDMA is looked for; NoSystem is why it cannot be.
	System   discovery.System
	NoSystem error
	// Memlock tells how much memory may be locked; nil: it is not known.
	Memlock func() (verbstransport.Memlock, error)
	// Provider is asked for its devices, and opens the chosen one; nil: not.
	Provider verbs.Provider
	// Software has the devices in software; nil: they are not looked for. Sockets
	// finds out what the kernel gives for the address of one; nil: it is not known.
	Software *server.Source
	Sockets  func(netip.Addr) Sockets
	// LocalAddr is the address by which peers reach a process with these settings, and
	// LocalAddrWhy who says so (server.LocalAddr); zero: not known.
	LocalAddr    netip.Addr
	LocalAddrWhy string
	// ReachVerbs asks a peer by RDMA, and says what it is; nil: not.
	ReachVerbs func(ctx context.Context, task cluster.Task, address string) (string, error)
}

// OnThisHost fills in where to look on this host. Peers are asked by RDMA when
// tensors are to go so.
func (o Options) OnThisHost() Options {
	o.System, o.NoSystem = discovery.Host()
	o.Memlock = verbstransport.ReadMemlock
	o.Provider = libibverbs.New(libibverbs.Options{})
	software := server.RoCESource(nil)
	o.Software, o.Sockets = &software, hostSockets
	if o.Client.Transport == verbstransport.Name {
		o.ReachVerbs = ReachVerbs(o.Client, server.Options{})
	}
	return o
}

// wanted is what the settings ask for of a device.
func wanted(c config.RDMA) discovery.Want {
	return discovery.Want{Device: c.Device, Port: uint8(c.Port), GIDIndex: c.GIDIndex, MTU: verbs.MTU(c.MTU), ServiceLevel: uint8(c.ServiceLevel)}
}

// Gather finds out the facts. It ends when ctx does, with what it has; a peer
// that does not answer is waited for 5 s.
func Gather(ctx context.Context, o Options) Facts {
	f := Facts{
		Required: o.Client.Transport == "verbs", Provider: o.Client.Provider, Want: wanted(o.Client.RDMA),
		// One pool to send and one to receive.
		RegisterLeast: 2 * uint64(o.Client.Arena), RegisterMost: 2 * uint64(o.Client.ArenaLimit), Messages: server.MessageMemory(o.Client),
	}
	f.NoDiscovery, f.Settings = o.NoSystem, o.Settings
	f.TrafficClass = uint8(o.Client.RDMA.TrafficClass) //nolint:gosec // a limit of the setting
	if f.NoDiscovery == nil {
		f.Inventory, f.NoDiscovery = o.System.Read()
	}
	if f.NoDiscovery == nil {
		f.Kernel = o.System.Kernel(f.Inventory)
		f.Choice, f.NoChoice = discovery.Choose(f.Inventory, f.Want)
		f.HugePages = hugePages(o.System.Sys)
		if f.NoChoice == nil {
			f.Counters, f.NoCounters = o.System.Counters(f.Choice.Device, f.Choice.Port)
			if pfc, err := o.System.PFC(f.Choice.Netdev); err == nil && f.Choice.Netdev != "" {
				f.PFC = &pfc // most drivers do not tell
			}
			f.ECN = ecn(o.System.Sys, f.Choice.Netdev)
		}
	}
	f.NoMemlock = errors.New("there is nobody to ask here")
	if o.Memlock != nil {
		f.Memlock, f.NoMemlock = o.Memlock()
	}
	if o.Provider != nil {
		f.Library = askLibrary(o.Provider, f)
	}
	if o.Software != nil {
		f.Software = lookForSoftware(o, f.Want)
	}
	if provider, _ := f.uses(); provider == "" && f.Library.Asked {
		o.ReachVerbs = nil // whom would a device reach that cannot be used; why is told
	}
	f.Peers = askPeers(ctx, o)
	return f
}

// askLibrary asks a provider for its devices, and the chosen one for its port.
func askLibrary(p verbs.Provider, f Facts) Library {
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
