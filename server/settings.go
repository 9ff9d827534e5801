package server

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/buildinfo"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/delivery"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/providers"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/server/internal/calls"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/memory"
	"github.com/tryst-rdma/tryst/server/internal/peers"
	"github.com/tryst-rdma/tryst/server/internal/rdma"
	"github.com/tryst-rdma/tryst/transport"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// The settings as the parts of a process take them. Only Start, Dial and these functions see all of them.

// divide returns the parts of the memory of the process, in bytes, and lowers the limits that nobody has set to them.
func (c *complete) divide(bytes int64, use config.Use) memory.Division {
	l := memory.Limits{
		Memory: c.Memory, Server: use&config.ForServer != 0, Registered: c.Transport != TransportGRPC, Set: c.set,
		Arena: c.RDMA.Arena, ArenaLimit: c.RDMA.ArenaLimit, MaxWaiting: c.Limits.MaxWaiting, MaxWaitingBytes: c.Limits.MaxWaitingBytes,
		MaxGraphBytes: c.Graphs.MaxGraphBytes, KeptTotal: c.Limits.KeptTotal,
	}
	parts := l.Divide(bytes)
	c.RDMA.Arena, c.RDMA.ArenaLimit, c.Limits.MaxWaiting, c.Limits.MaxWaitingBytes = l.Arena, l.ArenaLimit, l.MaxWaiting, l.MaxWaitingBytes
	c.Graphs.MaxGraphBytes, c.Limits.KeptTotal = l.MaxGraphBytes, l.KeptTotal
	return parts
}

// processMemory returns how many bytes this process may use, when no setting says so; 0 when nothing tells.
func (o *Options) processMemory(setting int64) int64 {
	if o.memory != 0 || setting != 0 {
		return o.memory
	}
	return memory.OfProcess(o.memoryOfGroup, o.Logger)
}

// cacheOptions are the limits of the response cache.
func cacheOptions(c *complete, memory memory.Division) delivery.CacheOptions {
	return delivery.CacheOptions{
		MaxWaiting: c.Limits.MaxWaiting, MaxWaitingBytes: c.Limits.MaxWaitingBytes,
		KeptPerRequester: c.Limits.KeptPerPeer, KeptTotal: cmp.Or(c.Limits.KeptTotal, transport.DefaultKeptPerRequester),
		MaxRemembered: int(memory.Remembered),
	}
}

// listenOptions are the settings of the listener.
func listenOptions(c *complete) listen.Options {
	return listen.Options{Listen: c.Listen, InCluster: c.inCluster, TaskIsSet: c.set[config.TaskKey], Cluster: c.spec, Task: c.task}
}

// peersSettings are the settings for connections to peers. resolve returns the address of a peer that is
// not in the cluster; nil if there are none.
func peersSettings(c *complete, resolve func(cluster.Task) (string, bool), cache delivery.CacheOptions, o Options) peers.Settings {
	return peers.Settings{
		Spec: c.spec, Resolve: resolve, TLS: certificates.Files(c.TLS), KeepaliveTime: c.GRPC.KeepaliveTime, KeepaliveTimeout: c.GRPC.KeepaliveTimeout,
		Connections: c.GRPC.ConnectionsPerPeer, PeerTimeout: c.PeerTimeout, ReleaseAfter: c.ReleaseAfter, Stats: o.ClientStats, Responses: cache,
	}
}

// reach is how peers reach a process.
type reach struct {
	// local returns the address by which they do, and the reason for it. It may change with the network.
	local func(context.Context) (netip.Addr, string)
	// resolve returns the address of a peer that is not in the cluster; nil if there are none, as in a
	// server.
	resolve func(cluster.Task) (string, bool)
}

// verbsSettings are the settings for verbs; nil for another transport. What is known only when the process listens
// is added by openDevices.
func verbsSettings(c *complete, at reach, maxWaiting int, o Options, log *slog.Logger) (*rdma.Settings, error) {
	if c.Transport == TransportGRPC {
		return nil, nil //nolint:nilnil // no settings, and no error
	}
	mode, err := verbstransport.ParsePollMode(c.RDMA.Poll)
	if err != nil {
		return nil, err
	}
	v := &rdma.Settings{
		Finder: finderOptions(c, at.local, log), Spec: c.spec, Resolve: at.resolve, Required: c.Fallback == FallbackNone,
		Optional: c.Transport == TransportAuto && c.Fallback != FallbackNone,
		Security: certificates.Protection(certificates.Files(c.TLS), at.resolve == nil), Channel: channelOptions(c),
		Memory: verbstransport.MemoryOptions{Arena: c.RDMA.Arena, SendLimit: c.RDMA.ArenaLimit, RecvLimit: c.RDMA.ArenaLimit, Idle: c.ReleaseAfter},
		Poll:   mode, PeerTimeout: c.PeerTimeout, MaxWaiting: maxWaiting,
	}
	v.Finder.Optional = v.Optional
	if v.Finder.Passed = o.Provider; o.Provider == nil {
		if o.rows == nil {
			o.rows = providers.All()
		}
		v.Finder.Openers = devices.RDMAOpeners(o.rows, c.providers().Takes, providers.Options{Logger: log})
	}
	v.Fixed = devices.FixedOptions{
		Takes: c.providers().Takes, Named: c.providers().Names, Settings: rdmaOf(c.RDMA), Rows: o.rows,
		Options: providers.Options{Directory: c.SHMDir, Trusted: v.Security == verbstransport.MutualTLS, Busy: mode == verbstransport.PollBusy, Logger: log},
	}
	return v, nil
}

// finderOptions are the settings of the RDMA device. local returns the address by which peers reach the
// process.
func finderOptions(c *complete, local func(context.Context) (netip.Addr, string), log *slog.Logger) devices.FinderOptions {
	return devices.FinderOptions{Settings: rdmaOf(c.RDMA), Named: c.providers().Names, LocalAddr: local, Logger: log}
}

// channelOptions are the settings for the number and size of a channel's messages.
func channelOptions(c *complete) verbstransport.Options {
	return verbstransport.Options{
		Window: c.RDMA.QueueDepth / 2, SendQueue: c.RDMA.QueueDepth, EagerLimit: int(c.RDMA.EagerLimit),
		PortOptions: verbstransport.PortOptions{Rails: cmp.Or(c.RDMA.QueuePairs, providers.NICQueuePairs)},
	}
}

// rdmaOf are the settings of the RDMA device and its queue pairs.
func rdmaOf(r RDMA) devices.RDMA {
	return devices.RDMA{
		Device: r.Device, Port: r.Port, GIDIndex: r.GIDIndex, MTU: r.MTU, TrafficClass: r.TrafficClass,
		ServiceLevel: r.ServiceLevel, PKeyIndex: r.PKeyIndex, Timeout: r.Timeout, Retry: r.Retry, QueuePairs: r.QueuePairs,
	}
}

// MessageMemory returns how many bytes of locked memory the control messages of channels with all
// expected peers take over a kernel device, in addition to the arenas. Settings that are not valid take none.
func MessageMemory(c Config) uint64 {
	all, err := c.check(config.ForDoctor, GraphLimits{})
	if err != nil {
		return 0
	}
	return rdma.MessageMemory(all.spec, channelOptions(&all))
}

// callsSettings are the settings for calls of peers.
func callsSettings(c *complete, o Options) calls.Settings {
	t := grpctransport.ServerTuning{
		KeepaliveTime: c.GRPC.KeepaliveTime, KeepaliveTimeout: c.GRPC.KeepaliveTimeout, MaxWaiting: c.Limits.MaxWaiting,
		PerPeer: c.Limits.KeptPerPeer, Total: cmp.Or(c.Limits.KeptTotal, transport.DefaultKeptPerRequester),
	}
	if o.Kernels != nil {
		t.MaxGraph = c.Graphs.MaxGraphBytes
	}
	return calls.Settings{TLS: certificates.Files(c.TLS), Tuning: t, Stats: o.ServerStats}
}

// workerOptions are the settings for graphs.
func workerOptions(c *complete, o Options) worker.Options {
	return worker.Options{
		CacheRPCResponse: c.GRPC.CacheRPCResponse, MaxWaiting: c.Limits.MaxWaiting, MaxWaitingBytes: c.Limits.MaxWaitingBytes, Kernels: o.Kernels,
		Limits: worker.Limits{
			Sessions: c.Graphs.MaxSessions, Graphs: c.Graphs.MaxGraphs, GraphBytes: c.Graphs.MaxGraphBytes, SessionBytes: c.Graphs.MaxSessionBytes, Steps: c.Graphs.MaxRunningSteps,
		},
	}
}

// catalogOptions are the settings for publications.
func catalogOptions(c *complete) checkpoint.CatalogOptions {
	return checkpoint.CatalogOptions{
		Digest: c.Publications.Digest, MMap: c.Publications.MMap, CacheBytes: c.Publications.FileCache, CacheTime: 2 * c.ReleaseAfter,
		ReplacedPulls: c.Publications.ReplacedPulls, NoDeltas: c.Publications.Deltas == config.DeltasNone,
	}
}

// serveOptionsOf are the settings for the listeners.
func serveOptionsOf(c *complete, o Options) serveOptions {
	return serveOptions{
		Secured: c.TLS.Cert != "", Transport: c.Transport, UnaryLimit: c.GRPC.UnaryLimit, Prepare: o.Prepare,
		HTTP: httpserver.Options{MetricsAddress: c.MetricsAddress, PprofAddress: c.PprofAddress},
	}
}

// overviewOptionsOf are the settings for /api/status.
func overviewOptionsOf(c *complete, o Options) overviewOptions {
	v := overviewOptions{
		Served: c.MetricsAddress != "", Transport: c.Transport, Build: buildinfo.Read(o.Version), Settings: []statusapi.Setting{},
		Limits: overviewLimits{
			MaxWaiting: c.Limits.MaxWaiting, KeptTotal: c.Limits.KeptTotal,
			Sessions: c.Graphs.MaxSessions, Steps: c.Graphs.MaxRunningSteps,
		},
	}
	for _, s := range config.Bind(&c.Config, &c.Graphs).Changed() {
		if c.set[s.Key] {
			v.Settings = append(v.Settings, statusapi.Setting{Key: s.Key, Value: s.Text})
		}
	}
	return v
}
