package tryst

import (
	"errors"
	"strings"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// fields has the field of Config for the key of each setting, for errors.
var fields = map[string]string{
	"listen": "Listen", "cluster": "Cluster", "task": "Task", "collective-leader": "CollectiveLeader",
	"transport": "Transport", "fallback": "Fallback", "provider": "Provider", "shm": "SHM", "shm-dir": "SHMDir",
	"memory":       "Memory",
	"peer-timeout": "PeerTimeout", "shutdown-timeout": "ShutdownTimeout", "release-after": "ReleaseAfter",
	"metrics-address": "MetricsAddress", "pprof-address": "PprofAddress", "address-file": "AddressFile",

	"rdma.device": "RDMA.Device", "rdma.port": "RDMA.Port", "rdma.gid-index": "RDMA.GIDIndex", "rdma.mtu": "RDMA.MTU",
	"rdma.traffic-class": "RDMA.TrafficClass", "rdma.service-level": "RDMA.ServiceLevel", "rdma.pkey-index": "RDMA.PKeyIndex",
	"rdma.timeout": "RDMA.Timeout", "rdma.retry": "RDMA.Retry", "rdma.queue-depth": "RDMA.QueueDepth", "rdma.queue-pairs": "RDMA.QueuePairs",
	"poll": "RDMA.Poll", "eager-limit": "RDMA.EagerLimit", "arena": "RDMA.Arena", "arena-limit": "RDMA.ArenaLimit",

	"connections-per-peer": "GRPC.ConnectionsPerPeer", "keepalive.time": "GRPC.KeepaliveTime", "keepalive.timeout": "GRPC.KeepaliveTimeout",
	"unary-limit": "GRPC.UnaryLimit", "cache-rpc-response": "GRPC.CacheRPCResponse",

	"tls.cert": "TLS.Cert", "tls.key": "TLS.Key", "tls.ca": "TLS.CA", "tls.server-name": "TLS.ServerName",
	"tls.require-client-cert": "TLS.RequireClientCert",

	"digest": "Publications.Digest", "publish-mmap": "Publications.MMap", "file-cache": "Publications.FileCache",

	"cpu-devices": "CPUDevices", "max-sessions": "Limits.MaxSessions", "max-graphs": "Limits.MaxGraphs",
	"max-graph-bytes": "Limits.MaxGraphBytes", "max-session-bytes": "Limits.MaxSessionBytes", "max-running-steps": "Limits.MaxRunningSteps",

	"max-waiting": "Limits.MaxWaiting", "max-waiting-bytes": "Limits.MaxWaitingBytes",
	"kept.per-peer": "Limits.KeptPerPeer", "kept.total": "Limits.KeptTotal", "send-bound": "Limits.SendBound",
}

// settings returns the complete settings of a process: those of c, the defaults for the others. Its
// errors name the fields of Config.
func (c Config) settings(use config.Use) (config.Config, error) {
	s, err := c.given()
	if err != nil {
		return config.Config{}, err
	}
	if idle := s.WithoutEffect(use); len(idle) > 0 {
		return config.Config{}, status.Errorf(status.InvalidArgument, "Config.%s is set, and has no effect in a client: it is a setting of servers; leave it out", fields[idle[0]])
	}
	s.FillDefaults()
	return s, byField(s.Validate(use))
}

// byField replaces keys in errors by the fields.
func byField(err error) error {
	if err == nil {
		return nil
	}
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	named := make([]error, len(all))
	for i, e := range all {
		was := status.From(e).Message()
		if text := withFields(was); text != was {
			e = status.New(status.CodeOf(e), text)
		}
		named[i] = e
	}
	return errors.Join(named...)
}

// withFields replaces the key at the beginning of a text, and those in its advice that are no words of
// English: with a dot or a hyphen.
func withFields(text string) string {
	words := strings.Split(text, " ")
	for i, w := range words {
		key := strings.Trim(w, ",;:.()")
		if field := fields[key]; field != "" && (i == 0 || strings.ContainsAny(key, ".-")) {
			words[i] = strings.Replace(w, key, "Config."+field, 1)
		}
	}
	return strings.Join(words, " ")
}

// given converts c. A field with its zero value stays so.
func (c Config) given() (config.Config, error) {
	spec, err := cluster.ParseLists(c.Cluster)
	if err != nil {
		return config.Config{}, status.From(err).WithPrefix("Config.Cluster")
	}
	if spec.Len() == 0 {
		spec = nil
	}
	var task cluster.Task
	if c.Task != "" {
		if task, err = cluster.ParseTask(c.Task); err != nil {
			return config.Config{}, status.From(err).WithPrefix("Config.Task")
		}
	}
	var leader cluster.Task
	if c.CollectiveLeader != "" {
		if leader, err = cluster.ParseTask(c.CollectiveLeader); err != nil {
			return config.Config{}, status.From(err).WithPrefix("Config.CollectiveLeader")
		}
	}
	r := c.RDMA
	return config.Config{
		Client: config.Client{
			Transport: c.Transport, Cluster: spec, TLS: config.TLS(c.TLS),
			Keepalive:   config.Keepalive{Time: c.GRPC.KeepaliveTime, Timeout: c.GRPC.KeepaliveTimeout},
			PeerTimeout: c.PeerTimeout, ReleaseAfter: c.ReleaseAfter, Memory: c.Memory, ConnectionsPerPeer: c.GRPC.ConnectionsPerPeer,
			Fallback: c.Fallback, Provider: c.Provider, SHM: c.SHM, SHMDir: c.SHMDir,
			RDMA: config.RDMA{
				Device: r.Device, Port: r.Port, GIDIndex: r.GIDIndex, MTU: r.MTU, TrafficClass: r.TrafficClass,
				ServiceLevel: r.ServiceLevel, PKeyIndex: r.PKeyIndex, Timeout: r.Timeout, Retry: r.Retry,
				QueueDepth: r.QueueDepth, QueuePairs: r.QueuePairs,
			},
			EagerLimit: r.EagerLimit, Arena: r.Arena, ArenaLimit: r.ArenaLimit, Poll: r.Poll,
		},
		Listen: c.Listen, AddressFile: c.AddressFile, Task: task, CollectiveLeader: leader,
		MetricsAddress: c.MetricsAddress, PprofAddress: c.PprofAddress, ShutdownTimeout: c.ShutdownTimeout,
		UnaryLimit: c.GRPC.UnaryLimit, CacheRPCResponse: c.GRPC.CacheRPCResponse,
		MaxWaiting: c.Limits.MaxWaiting, MaxWaitingBytes: c.Limits.MaxWaitingBytes,
		KeptPerPeer: c.Limits.KeptPerPeer, KeptTotal: c.Limits.KeptTotal, SendBound: c.Limits.SendBound,
		CPUDevices: c.CPUDevices, MaxSessions: c.Limits.MaxSessions, MaxGraphs: c.Limits.MaxGraphs,
		MaxGraphBytes: c.Limits.MaxGraphBytes, MaxSessionBytes: c.Limits.MaxSessionBytes, MaxRunningSteps: c.Limits.MaxRunningSteps,
		PublishMMap: c.Publications.MMap, Digest: c.Publications.Digest, FileCache: c.Publications.FileCache,
	}, nil
}
