package server

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/tensorflow/worker"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/transport"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// The settings as the parts of a process take them. Only Start, Dial and these functions see all of them.

// cacheOptions are the limits of the response cache.
func cacheOptions(c config.Config, memory config.Budget) transport.CacheOptions {
	return transport.CacheOptions{
		MaxWaiting: c.MaxWaiting, MaxWaitingBytes: c.MaxWaitingBytes,
		KeptPerRequester: c.KeptPerPeer, KeptTotal: cmp.Or(c.KeptTotal, transport.DefaultKeptPerRequester),
		MaxRemembered: int(memory.Remembered),
	}
}

// listenOptions are the settings of the listener.
func listenOptions(c config.Config) listen.Options {
	return listen.Options{Listen: c.Listen, InCluster: c.ListensInCluster(), TaskIsSet: c.TaskIsSet(), Cluster: c.Cluster, Task: c.Task}
}

// peersOptionsOf are the settings for connections to peers. resolve returns the address of a peer that is
// not in the cluster; nil if there are none.
func peersOptionsOf(c config.Client, resolve func(cluster.Task) (string, bool), cache transport.CacheOptions, o Options) peersOptions {
	return peersOptions{
		Spec: c.Cluster, Resolve: resolve, TLS: c.TLS, Keepalive: c.Keepalive, Connections: c.ConnectionsPerPeer,
		PeerTimeout: c.PeerTimeout, ReleaseAfter: c.ReleaseAfter, Stats: o.ClientStats, Cache: cache,
	}
}

// reach is how peers reach a process.
type reach struct {
	// local returns the address by which they do, and the reason for it. It may change with the network.
	local func(context.Context) (netip.Addr, string)
	// addresses are those at which they dial it, as "host:port"; none for a process that only dials.
	addresses []string
	// resolve returns the address of a peer that is not in the cluster; nil if there are none, as in a
	// server.
	resolve func(cluster.Task) (string, bool)
}

// verbsOptionsOf are the settings for verbs.
func verbsOptionsOf(c config.Client, at reach, maxWaiting int, o Options, log *slog.Logger, dial func(context.Context, string) (net.Conn, error)) (verbsOptions, error) {
	mode, err := verbstransport.ParsePollMode(c.Poll)
	if err != nil {
		return verbsOptions{}, err
	}
	v := verbsOptions{
		Finder: finderOptions(c, at.local, log), Spec: c.Cluster, Resolve: at.resolve, Required: c.Fallback == fallbackNone,
		Security: certificates.Protection(c.TLS, at.resolve == nil), Channel: channelOptions(c),
		Memory: verbstransport.MemoryOptions{Arena: c.Arena, SendLimit: c.ArenaLimit, RecvLimit: c.ArenaLimit, Idle: c.ReleaseAfter},
		Poll:   mode, PeerTimeout: c.PeerTimeout, MaxWaiting: maxWaiting,
	}
	if v.Finder.Passed = o.Provider; o.Provider == nil {
		v.Finder.Kernel, v.Finder.Software = devices.KernelSource(), devices.RoCESource(log)
	}
	if o.Provider == nil || o.fixed != nil {
		v.Fixed = &devices.FixedOptions{
			Takes: c.Takes, Named: c.Names, Settings: c.RDMA, Addresses: at.addresses, Dial: dial, Directory: c.SHMDir,
			Trusted: v.Security == verbstransport.MutualTLS, Sources: o.fixed, Logger: log,
		}
	}
	return v, nil
}

// finderOptions are the settings of the RDMA device. local returns the address by which peers reach the
// process.
func finderOptions(c config.Client, local func(context.Context) (netip.Addr, string), log *slog.Logger) devices.FinderOptions {
	return devices.FinderOptions{Settings: c.RDMA, Provider: c.Fabric(), Named: c.Names, LocalAddr: local, Logger: log}
}

// channelOptions are the settings for the number and size of a channel's messages.
func channelOptions(c config.Client) verbstransport.Options {
	return verbstransport.Options{
		Window: c.RDMA.QueueDepth / 2, SendQueue: c.RDMA.QueueDepth, EagerLimit: int(c.EagerLimit),
		PortOptions: verbstransport.PortOptions{Rails: cmp.Or(c.RDMA.QueuePairs, devices.DefaultQueuePairs)},
	}
}

// MessageMemory returns how many bytes of locked memory the control messages of channels with all
// expected peers take over a kernel device, in addition to the arenas.
func MessageMemory(c config.Client) uint64 { return messageMemory(c.Cluster, channelOptions(c)) }

// grpcOptionsOf are the settings for calls of peers.
func grpcOptionsOf(c config.Config, o Options) grpcOptions {
	g := grpcOptions{
		TLS: c.TLS, Keepalive: c.Keepalive, MaxWaiting: c.MaxWaiting,
		PerPeer: c.KeptPerPeer, Total: cmp.Or(c.KeptTotal, transport.DefaultKeptPerRequester), Stats: o.ServerStats,
	}
	if o.Kernels != nil {
		g.MaxGraph = c.MaxGraphBytes
	}
	return g
}

// workerOptions are the settings for graphs.
func workerOptions(c config.Config, o Options) worker.Options {
	return worker.Options{
		CacheRPCResponse: c.CacheRPCResponse, MaxWaiting: c.MaxWaiting, MaxWaitingBytes: c.MaxWaitingBytes, Kernels: o.Kernels,
		Limits: worker.Limits{
			Sessions: c.MaxSessions, Graphs: c.MaxGraphs, GraphBytes: c.MaxGraphBytes, SessionBytes: c.MaxSessionBytes, Steps: c.MaxRunningSteps,
		},
	}
}

// catalogOptions are the settings for publications.
func catalogOptions(c config.Config) checkpoint.CatalogOptions {
	return checkpoint.CatalogOptions{Digest: c.Digest, MMap: c.PublishMMap, CacheBytes: c.FileCache, CacheTime: 2 * c.ReleaseAfter}
}

// serveOptionsOf are the settings for the listeners.
func serveOptionsOf(c config.Config, o Options) serveOptions {
	return serveOptions{
		Secured: c.TLS.Cert != "", UnaryLimit: c.UnaryLimit, MetricsAddress: c.MetricsAddress, PprofAddress: c.PprofAddress, Prepare: o.Prepare,
	}
}
