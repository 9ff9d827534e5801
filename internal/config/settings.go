package config

import (
	"slices"
	"strings"
	"time"
)

// Use is a set of kinds of processes.
type Use uint8

// The kinds of processes.
const (
	// ForClient is a process that only dials, such as pull and keys.
	ForClient Use = 1 << iota
	// ForServer is a process that listens: serve.
	ForServer
	// ForDoctor is doctor, which examines a host for clients and servers. It traces nothing,
	// and its report is its log.
	ForDoctor
	// ForBench is tryst-bench, which neither logs nor traces.
	ForBench
)

// String returns "client", "server" or both. The commands that examine and measure are not named.
func (u Use) String() string {
	var names []string
	if u&ForServer != 0 {
		names = append(names, "server")
	}
	if u&ForClient != 0 {
		names = append(names, "client")
	}
	return strings.Join(names, ", ")
}

const (
	both = ForClient | ForServer
	all  = both | ForDoctor | ForBench
)

// Setting describes one setting.
type Setting struct {
	// Key is its name and its path in the YAML file.
	Key string
	// Default is its value if no source sets one, in the form of a flag.
	Default string
	// Help describes it, for --help and docs/settings.md.
	Help string
	// Use has the processes that it affects.
	Use Use

	value func(*Config) value // access to its field
}

// Units, and limits with a reason.
const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30
	tib int64 = 1 << 40
	pib int64 = 1 << 50
)

// settings is the table, in the order of docs/settings.md.
var settings = []Setting{
	{"config", "", "YAML file with settings",
		all, func(c *Config) value { return anyText{&c.File, "path"} }},
	{"transport", "grpc", "transport that carries tensors",
		all, func(c *Config) value { return choice{&c.Transport, Transports()} }},
	{ListenKey, "127.0.0.1:2222", "address that the server listens on; port 0 = any free port; the default in a cluster is the address of task there",
		ForServer | ForDoctor, func(c *Config) value { return address{&c.Listen, false} }},
	{"address-file", "", "file to which the server writes its address when it is ready",
		ForServer, func(c *Config) value { return anyText{&c.AddressFile, "path"} }},
	{"cluster", "", "all tasks and their addresses, such as worker=h1:2222,h2:2222;ps=7@h3:2222",
		all, func(c *Config) value { return spec{&c.Cluster} }},
	{"task", "/job:worker/replica:0/task:0", "name of this process",
		ForServer | ForDoctor, func(c *Config) value { return task{&c.Task} }},
	{"collective-leader", "", "task that puts the groups of collective operations together, the same at all members; empty = task 0 of the job of task",
		ForServer, func(c *Config) value { return maybeTask{task{&c.CollectiveLeader}} }},
	{"metrics-address", "", "address that serves Prometheus metrics (/metrics) and probes (/healthz, /readyz) over HTTP",
		ForServer, func(c *Config) value { return address{&c.MetricsAddress, true} }},
	{"pprof-address", "", "address that serves net/http/pprof",
		ForServer, func(c *Config) value { return address{&c.PprofAddress, true} }},
	{"log.level", "info", "lowest level that is logged; the default of pull and keys is warn",
		both, func(c *Config) value { return level{&c.Log.Level} }},
	{"log.format", "text", "format of the log on stderr",
		both, func(c *Config) value { return choice{&c.Log.Format, []string{"text", "json"}} }},
	{"tls.cert", "", "PEM file with the certificate chain of this process",
		all, func(c *Config) value { return anyText{&c.TLS.Cert, "path"} }},
	{"tls.key", "", "PEM file with the private key of tls.cert",
		all, func(c *Config) value { return anyText{&c.TLS.Key, "path"} }},
	{"tls.ca", "", "PEM file with the certificate authorities that are trusted to sign certificates of peers",
		all, func(c *Config) value { return anyText{&c.TLS.CA, "path"} }},
	{"tls.server-name", "", "expected name in the certificates of servers; empty = the host of the address",
		all, func(c *Config) value { return anyText{&c.TLS.ServerName, "name"} }},
	{"tls.require-client-cert", "false", "refuse clients without a certificate signed by tls.ca (mutual TLS)",
		ForServer, func(c *Config) value { return boolean{&c.TLS.RequireClientCert} }},
	{"keepalive.time", "30s", "time without traffic after which a connection is probed",
		all, func(c *Config) value { return duration{&c.Keepalive.Time, minKeepalive, 24 * time.Hour} }},
	{"keepalive.timeout", "10s", "time without an answer to a probe after which the connection is closed",
		all, func(c *Config) value { return duration{&c.Keepalive.Timeout, time.Second, time.Hour} }},
	{"shutdown-timeout", "10s", "time that a graceful stop waits for calls in progress",
		ForServer, func(c *Config) value { return duration{&c.ShutdownTimeout, time.Millisecond, time.Hour} }},
	{"peer-timeout", "10s", "time that a peer may be unreachable before receives from it fail",
		all, func(c *Config) value { return duration{&c.PeerTimeout, time.Millisecond, time.Hour} }},
	{"release-after", "10s", "time without use after which memory that is kept for reuse goes back to the system; the contents in the file cache go after twice that time",
		all, func(c *Config) value { return duration{&c.ReleaseAfter, time.Second, 24 * time.Hour} }},
	{"memory", "0", "memory that the process may use, into which all limits together must fit; 0 = the limit of its control group, or the memory of the host",
		all, func(c *Config) value { return size{&c.Memory, 0, pib} }},
	{"fallback", "grpc", "transport for peers that verbs does not reach; none = receives wait for verbs up to peer-timeout and then fail",
		all, func(c *Config) value { return choice{&c.Fallback, []string{"grpc", "none"}} }},
	{"provider", ProviderAuto, "devices of verbs, with commas between them, in any order: shm (shared memory within a host), libibverbs (NICs and Soft-RoCE of the kernel), tcp, roce (RoCE in user space, over UDP); each peer is reached over the best one that both have, in the order of this list, but roce before tcp to a peer with libibverbs; auto = all of them, roce only where no RDMA port is active and between two hosts without libibverbs only if one of them names it",
		all, func(c *Config) value { return providerText{&c.Provider} }},
	{"shm", "auto", "shared memory with processes of this host: of the same user, or proven by mutual TLS",
		all, func(c *Config) value { return choice{&c.SHM, []string{"auto", SHMOff}} }},
	{"shm-dir", "", "directory of the sockets for shared memory across network namespaces, such as containers; empty = within one network namespace",
		all, func(c *Config) value { return anyText{&c.SHMDir, "path"} }},
	{"rdma.device", "", "RDMA device (mlx5_0), network device (eth0) or local address for verbs; empty = the best one",
		all, func(c *Config) value { return anyText{&c.RDMA.Device, "name"} }},
	{"rdma.port", "0", "port of the device; 0 = the best one",
		all, func(c *Config) value { return count{&c.RDMA.Port, 0, 254} }},
	{"rdma.gid-index", "", "index in the port's GID table of the source address",
		all, func(c *Config) value { return maybeCount{&c.RDMA.GIDIndex, 0, 255, "empty = the best one", nil} }},
	{"rdma.mtu", "0", "largest payload of a packet in bytes, at most that of the port; 0 = that of the port",
		all, func(c *Config) value { return oneOf{&c.RDMA.MTU, []int{0, 256, 512, 1024, 2048, 4096}} }},
	{"rdma.traffic-class", "0", "traffic class of packets: the upper six bits are the DSCP, the lower two ECN (0 = not capable, 1 and 2 = capable)",
		all, func(c *Config) value { return trafficClass{count{&c.RDMA.TrafficClass, 0, 255}} }},
	{"rdma.service-level", "0", "service level on InfiniBand, priority on Ethernet (0 to 7)",
		all, func(c *Config) value { return count{&c.RDMA.ServiceLevel, 0, 15} }},
	{"rdma.pkey-index", "0", "index in the port's partition key table",
		all, func(c *Config) value { return count{&c.RDMA.PKeyIndex, 0, 65535} }},
	{"rdma.timeout", "0s", "time without an acknowledgement after which a packet is retransmitted, rounded up to 4.096µs times a power of two; 0 = 67ms, for roce, tcp and shm 268ms",
		all, func(c *Config) value { return maybeDuration{duration{&c.RDMA.Timeout, minTimeout, MaxTimeout}} }},
	{"rdma.retry", "6", "number of retransmissions of a packet before the channel breaks",
		all, func(c *Config) value { return maybeCount{&c.RDMA.Retry, 0, 6, "", noRetryForEver} }},
	{"rdma.queue-depth", "256", "work requests in a send queue; half as many receives are posted",
		all, func(c *Config) value { return count{&c.RDMA.QueueDepth, 16, 32768} }},
	{"rdma.queue-pairs", "0", "queue pairs for each peer; tensors of 2 MiB and more are spread over several, smaller ones use them in turn; 0 = 2, for roce 1",
		all, func(c *Config) value { return count{&c.RDMA.QueuePairs, 0, 8} }},
	{"eager-limit", "8KiB", "size up to which verbs sends a tensor within a message",
		all, func(c *Config) value { return size{&c.EagerLimit, 1, mib} }},
	{"arena", "64MiB", "size of the regions in which memory is registered",
		all, func(c *Config) value { return size{&c.Arena, mib, tib} }},
	{"arena-limit", "1GiB", "limit of the memory registered for sending, and of that for receiving; the default is an eighth of memory if that is less",
		all, func(c *Config) value { return size{&c.ArenaLimit, 2 * mib, pib} }},
	{"poll", "adaptive", "how to wait for completions: adaptive spins for 50µs, busy always spins, event never spins",
		all, func(c *Config) value { return choice{&c.Poll, []string{"adaptive", "busy", "event"}} }},
	{"connections-per-peer", "1", "gRPC connections to each peer",
		all, func(c *Config) value { return count{&c.ConnectionsPerPeer, 1, 64} }},
	{"unary-limit", "32MiB", "size above which gRPC sends a tensor in chunks, to peers that support it",
		ForServer, func(c *Config) value { return size{&c.UnaryLimit, kib, maxUnary} }},
	{"max-waiting", "1000000", "requests of one peer that may wait for their value; the default is less where they would take more than a 32nd of memory",
		ForServer, func(c *Config) value { return count{&c.MaxWaiting, 1, maxCount} }},
	{"max-waiting-bytes", "256MiB", "memory for the keys of these requests; the default is a 128th of memory if that is less",
		ForServer, func(c *Config) value { return size{&c.MaxWaitingBytes, 64 * kib, tib} }},
	{"kept.per-peer", "1GiB", "size of the response cache for one peer: responses that it has not acknowledged",
		ForServer, func(c *Config) value { return size{&c.KeptPerPeer, mib, pib} }},
	{"kept.total", "0", "size of the response cache for all peers; 0 = a quarter of memory",
		ForServer, func(c *Config) value { return size{&c.KeptTotal, 0, pib} }},
	{"send-bound", "256MiB", "what a step sends to a task by SendWait, in programs, before the task has it; a value counts its bytes, 256 at least",
		ForServer, func(c *Config) value { return size{&c.SendBound, kib, pib} }},
	{"cache-rpc-response", "false", "cache responses for TensorFlow's workers, too, until MarkRecvFinished",
		ForServer, func(c *Config) value { return boolean{&c.CacheRPCResponse} }},
	{"cpu-devices", "1", "CPU devices of this process in TensorFlow's cluster; each has an incarnation and variables of its own",
		ForServer, func(c *Config) value { return count{&c.CPUDevices, 1, 256} }},
	{"kernels", KernelsAuto, "kernels that run the graphs of TensorFlow masters: go, tensorflow = those of TensorFlow's library, which tryst-tensorflow opens; auto = go for tryst, tensorflow for tryst-tensorflow; none = graphs are refused",
		ForServer, func(c *Config) value {
			return choice{&c.Kernels, []string{KernelsAuto, KernelsGo, KernelsTensorFlow, KernelsNone}}
		}},
	{"max-sessions", "256", "sessions that TensorFlow masters may have here",
		ForServer, func(c *Config) value { return count{&c.MaxSessions, 1, maxSteps} }},
	{"max-graphs", "4096", "graphs that may be registered in a session",
		ForServer, func(c *Config) value { return count{&c.MaxGraphs, 1, maxCount} }},
	{"max-graph-bytes", "512MiB", "size of all graphs in a session, and of the largest request with a graph or with feeds; the default is a 13th of memory if that is less",
		ForServer, func(c *Config) value { return size{&c.MaxGraphBytes, mib, 2*gib - 1} }},
	{"max-session-bytes", "4GiB", "memory of all graphs in a session that are ready to run: their constants, nodes and edges, about",
		ForServer, func(c *Config) value { return size{&c.MaxSessionBytes, mib, pib} }},
	{"max-running-steps", "1024", "steps of a session that may run at once",
		ForServer, func(c *Config) value { return count{&c.MaxRunningSteps, 1, maxSteps} }},
	{"publish-mmap", "false", "map published files instead of reading them; truncating a mapped file kills the process",
		ForServer, func(c *Config) value { return boolean{&c.PublishMMap} }},
	{"digest", "xxh64", "digest of published tensors; sha256 is slower than the transfer",
		ForServer, func(c *Config) value { return choice{&c.Digest, []string{"xxh64", "sha256"}} }},
	{"file-cache", "256MiB", "size of the cache for the contents of published files, which is used while several pulls are under way",
		ForServer, func(c *Config) value { return size{&c.FileCache, mib, pib} }},
	{"otel.endpoint", "", "OTLP/gRPC collector of traces",
		both, func(c *Config) value { return address{&c.OTel.Endpoint, true} }},
	{"otel.sample-ratio", "1", "fraction of the traces that is exported",
		both, func(c *Config) value { return ratio{&c.OTel.SampleRatio} }},
	{"otel.insecure", "false", "connect to the collector without TLS",
		both, func(c *Config) value { return boolean{&c.OTel.Insecure} }},
}

// Settings returns the table of all settings.
func Settings() []Setting { return slices.Clone(settings) }

// Flag returns the name of the setting's flag, without leading dashes.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, ".", "-") }

// Env returns the name of the setting's environment variable.
func (s Setting) Env() string {
	return EnvPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.Key))
}

// Type returns the kind of the value, such as "duration", "size" or "host:port".
func (s Setting) Type() string { return s.value(new(Config)).Type() }

// Limits describes the valid values, or is "" if Type is enough.
func (s Setting) Limits() string { return s.value(new(Config)).limits() }

// Value gives access to the setting in c as text.
func (s Setting) Value(c *Config) Value { return s.value(c) }

// IsText reports whether every text is a value, such as a path or a name.
func (s Setting) IsText() bool {
	_, ok := s.value(new(Config)).(anyText)
	return ok
}

// InFile reports whether the YAML file may set the setting. All but the path of the file.
func (s Setting) InFile() bool { return s.Key != ConfigKey }

// byKey returns the setting of a key.
func byKey(key string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}

// WithoutEffect returns the keys of the settings that do not have their zero value, and have no
// effect in processes of the given use.
func (c *Config) WithoutEffect(use Use) []string {
	var zero Config
	var keys []string
	for _, s := range settings {
		if s.Use&use == 0 && s.value(c).String() != s.value(&zero).String() {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

// Given returns a Config with the settings that a source has set and that have an effect in
// processes of the given use. The others have their zero value.
func (c *Config) Given(use Use) Config {
	var g Config
	for _, s := range settings {
		kind := c.Source(s.Key).Kind
		if s.Key == ListenKey && c.ListensInCluster() {
			kind = FromDefault
		}
		if s.Use&use != 0 && kind != FromDefault {
			mustSet(s.value(&g), s.value(c).String())
		}
	}
	return g
}
