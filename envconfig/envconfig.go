// Package envconfig reads the settings of package tryst from the environment, as the command tryst
// does. Programs that fill in a tryst.Config themselves do not need it, and do not depend on what it
// imports.
//
// The sources, each of which overrides the next one, are the TRYST_ variables, the YAML file that
// TRYST_CONFIG names, and TF_CONFIG. docs/settings.md lists every setting. Those of the command
// alone (kernels, log.level, log.format, otel.*) are checked and then ignored: a program passes
// tryst.WithKernels, tryst.WithLogger and tryst.WithStatsHandlers.
package envconfig

import (
	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

// Load returns the settings for tryst.Serve. A field that no source sets has its zero value, which
// stands for the default. Several errors are joined; each is an InvalidArgument of one line that
// names the source of the value.
func Load() (tryst.Config, error) { return load(config.ForServer) }

// LoadClient returns the settings for tryst.Dial: those of Load that a
// client uses.
func LoadClient() (tryst.Config, error) { return load(config.ForClient) }

func load(use config.Use) (tryst.Config, error) {
	all, err := sources.Load(sources.Options{Use: use})
	if err != nil {
		return tryst.Config{}, err
	}
	c := all.Given(use)
	task, leader := "", ""
	if c.Task.Job != "" {
		task = c.Task.String()
	}
	if c.CollectiveLeader.Job != "" {
		leader = c.CollectiveLeader.String()
	}
	r := c.RDMA
	return tryst.Config{
		Listen: c.Listen, Cluster: c.Cluster.Lists(), Task: task, CPUDevices: c.CPUDevices, CollectiveLeader: leader,
		Transport: c.Transport, Fallback: c.Fallback, Provider: c.Provider, SHM: c.SHM, SHMDir: c.SHMDir,
		RDMA: tryst.RDMA{
			Device: r.Device, Port: r.Port, GIDIndex: r.GIDIndex, MTU: r.MTU, TrafficClass: r.TrafficClass,
			ServiceLevel: r.ServiceLevel, PKeyIndex: r.PKeyIndex, Timeout: r.Timeout, Retry: r.Retry,
			QueueDepth: r.QueueDepth, QueuePairs: r.QueuePairs,
			Poll: c.Poll, EagerLimit: c.EagerLimit, Arena: c.Arena, ArenaLimit: c.ArenaLimit,
		},
		GRPC: tryst.GRPC{
			ConnectionsPerPeer: c.ConnectionsPerPeer, KeepaliveTime: c.Keepalive.Time, KeepaliveTimeout: c.Keepalive.Timeout,
			UnaryLimit: c.UnaryLimit, CacheRPCResponse: c.CacheRPCResponse,
		},
		TLS:         tryst.TLS(c.TLS),
		PeerTimeout: c.PeerTimeout, ShutdownTimeout: c.ShutdownTimeout, ReleaseAfter: c.ReleaseAfter, Memory: c.Memory,
		MetricsAddress: c.MetricsAddress, PprofAddress: c.PprofAddress, AddressFile: c.AddressFile,
		Publications: tryst.Publications{Digest: c.Digest, MMap: c.PublishMMap, FileCache: c.FileCache},
		Limits: tryst.Limits{
			MaxWaiting: c.MaxWaiting, MaxWaitingBytes: c.MaxWaitingBytes, KeptPerPeer: c.KeptPerPeer, KeptTotal: c.KeptTotal, SendBound: c.SendBound,
			MaxSessions: c.MaxSessions, MaxGraphs: c.MaxGraphs, MaxGraphBytes: c.MaxGraphBytes, MaxSessionBytes: c.MaxSessionBytes, MaxRunningSteps: c.MaxRunningSteps,
		},
	}, nil
}
