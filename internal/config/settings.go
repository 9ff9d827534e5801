package config

import (
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/internal/providers"
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

	value func(p any) value // p is a pointer to its field, or nil for its type and limits
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
		all, func(p any) value { return anyText{to[string](p), "path"} }},
	{"transport", DefaultTransport, "transport that carries tensors: verbs = shared memory, RDMA or TCP, the best one for each peer; auto = verbs where both sides have it, and grpc otherwise",
		all, func(p any) value { return choice{to[string](p), Transports()} }},
	{ListenKey, "127.0.0.1:2222", "address that the server listens on; port 0 = any free port; the default in a cluster is the address of task there",
		ForServer | ForDoctor, func(p any) value { return address{to[string](p), false} }},
	{"address-file", "", "file to which the server writes its address when it is ready",
		ForServer, func(p any) value { return anyText{to[string](p), "path"} }},
	{"cluster", "", "all tasks and their addresses, such as worker=h1:2222,h2:2222;ps=7@h3:2222",
		all, func(p any) value { return spec{to[map[string][]string](p)} }},
	{"task", "/job:worker/replica:0/task:0", "name of this process",
		ForServer | ForDoctor, func(p any) value { return task{to[string](p)} }},
	{"collective-leader", "", "task that puts the groups of collective operations together, the same at all members; empty = task 0 of the job of task",
		ForServer, func(p any) value { return maybeTask{task{to[string](p)}} }},
	{"metrics-address", "", "address that serves a page (/), the status (/api/status), Prometheus metrics (/metrics) and probes (/healthz, /readyz) over HTTP",
		ForServer, func(p any) value { return address{to[string](p), true} }},
	{"pprof-address", "", "address that serves net/http/pprof",
		ForServer, func(p any) value { return address{to[string](p), true} }},
	{"log.level", "info", "lowest level that is logged; the default of pull and keys is warn",
		both, func(p any) value { return level{to[slog.Level](p)} }},
	{"log.format", "text", "format of the log on stderr",
		both, func(p any) value { return choice{to[string](p), []string{"text", "json"}} }},
	{"tls.cert", "", "PEM file with the certificate chain of this process",
		all, func(p any) value { return anyText{to[string](p), "path"} }},
	{"tls.key", "", "PEM file with the private key of tls.cert",
		all, func(p any) value { return anyText{to[string](p), "path"} }},
	{"tls.ca", "", "PEM file with the certificate authorities that are trusted to sign certificates of peers",
		all, func(p any) value { return anyText{to[string](p), "path"} }},
	{"tls.server-name", "", "expected name in the certificates of servers; empty = the host of the address",
		all, func(p any) value { return anyText{to[string](p), "name"} }},
	{"tls.require-client-cert", "false", "refuse clients without a certificate signed by tls.ca (mutual TLS)",
		ForServer, func(p any) value { return boolean{to[bool](p)} }},
	{"keepalive.time", "30s", "time without traffic after which a connection is probed",
		all, func(p any) value { return duration{to[time.Duration](p), minKeepalive, 24 * time.Hour} }},
	{"keepalive.timeout", "10s", "time without an answer to a probe after which the connection is closed",
		all, func(p any) value { return duration{to[time.Duration](p), time.Second, time.Hour} }},
	{"shutdown-timeout", "10s", "time that a graceful stop waits for calls in progress",
		ForServer, func(p any) value { return duration{to[time.Duration](p), time.Millisecond, time.Hour} }},
	{"peer-timeout", "10s", "time that a peer may be unreachable before receives from it fail",
		all, func(p any) value { return duration{to[time.Duration](p), time.Millisecond, time.Hour} }},
	{"release-after", "10s", "time without use after which memory that is kept for reuse goes back to the system; the contents in the file cache go after twice that time",
		all, func(p any) value { return duration{to[time.Duration](p), time.Second, 24 * time.Hour} }},
	{"memory", "0", "memory that the process may use, into which all limits together must fit; 0 = the limit of its control group, or the memory of the host",
		all, func(p any) value { return size{to[int64](p), 0, pib} }},
	{"fallback", "grpc", "transport for peers that verbs does not reach; none = receives wait for verbs up to peer-timeout and then fail; they fail at once if the peer has no verbs",
		all, func(p any) value { return choice{to[string](p), []string{"grpc", "none"}} }},
	{"provider", ProviderAuto, "devices of verbs, with commas between them, in any order: " + providersHelp() + "; each peer is reached over the best one that both have, in the order of this list, but roce before tcp to a peer with libibverbs; auto = all of them, roce only where no RDMA port is active and between two hosts without libibverbs only if one of them names it",
		all, func(p any) value { return providerText{to[string](p)} }},
	{SHMKey, "auto", "shared memory with processes of this host: of the same user, or proven by mutual TLS",
		all, func(p any) value { return choice{to[string](p), []string{"auto", SHMOff}} }},
	{"shm-dir", "", "directory of the sockets for shared memory across network namespaces, such as containers; empty = within one network namespace",
		all, func(p any) value { return anyText{to[string](p), "path"} }},
	{"rdma.device", "", "RDMA device (mlx5_0), network device (eth0) or local address for verbs; empty = the best one",
		all, func(p any) value { return anyText{to[string](p), "name"} }},
	{"rdma.port", "0", "port of the device; 0 = the best one",
		all, func(p any) value { return count{to[int](p), 0, 254} }},
	{"rdma.gid-index", "", "index in the port's GID table of the source address",
		all, func(p any) value { return maybeCount{to[*int](p), 0, 255, "empty = the best one", nil} }},
	{"rdma.mtu", "0", "largest payload of a packet in bytes, at most that of the port; 0 = that of the port",
		all, func(p any) value { return oneOf{to[int](p), []int{0, 256, 512, 1024, 2048, 4096}} }},
	{"rdma.traffic-class", "0", "traffic class of packets: the upper six bits are the DSCP, the lower two ECN (0 = not capable, 1 and 2 = capable)",
		all, func(p any) value { return trafficClass{count{to[int](p), 0, 255}} }},
	{"rdma.service-level", "0", "service level on InfiniBand, priority on Ethernet (0 to 7)",
		all, func(p any) value { return count{to[int](p), 0, 15} }},
	{"rdma.pkey-index", "0", "index in the port's partition key table",
		all, func(p any) value { return count{to[int](p), 0, 65535} }},
	{"rdma.timeout", "0s", "time without an acknowledgement after which a packet is retransmitted, rounded up to 4.096µs times a power of two; 0 = " + defaultHelp(providers.NICTimeout, func(p providers.Row) time.Duration { return p.Timeout }),
		all, func(p any) value { return maybeDuration{duration{to[time.Duration](p), minTimeout, MaxTimeout}} }},
	{"rdma.retry", "6", "number of retransmissions of a packet before the channel breaks",
		all, func(p any) value { return maybeCount{to[*int](p), 0, 6, "", noRetryForEver} }},
	{"rdma.queue-depth", "256", "work requests in a send queue; half as many receives are posted",
		all, func(p any) value { return count{to[int](p), 16, 32768} }},
	{"rdma.queue-pairs", "0", "queue pairs for each peer; tensors of 2 MiB and more are spread over several, smaller ones use them in turn; 0 = " + defaultHelp(providers.NICQueuePairs, func(p providers.Row) int { return p.QueuePairs }),
		all, func(p any) value { return count{to[int](p), 0, 8} }},
	{"eager-limit", "8KiB", "size up to which verbs sends a tensor within a message",
		all, func(p any) value { return size{to[int64](p), 1, mib} }},
	{"arena", "64MiB", "size of the regions in which memory is registered",
		all, func(p any) value { return size{to[int64](p), mib, tib} }},
	{"arena-limit", "1GiB", "limit of the memory registered for sending, and of that for receiving; the default is an eighth of memory if that is less",
		all, func(p any) value { return size{to[int64](p), 2 * mib, pib} }},
	{"poll", "adaptive", "how to wait for completions: adaptive spins for 50µs (shm, tcp: 100µs), busy always spins (shm, tcp: 1ms), event never spins",
		all, func(p any) value { return choice{to[string](p), []string{"adaptive", "busy", "event"}} }},
	{"connections-per-peer", "1", "gRPC connections to each peer",
		all, func(p any) value { return count{to[int](p), 1, 64} }},
	{"unary-limit", "32MiB", "size above which gRPC sends a tensor in chunks, to peers that support it",
		ForServer, func(p any) value { return size{to[int64](p), kib, maxUnary} }},
	{"max-waiting", "1000000", "requests of one peer that may wait for their value; the default is less where they would take more than a 32nd of memory",
		ForServer, func(p any) value { return count{to[int](p), 1, maxCount} }},
	{"max-waiting-bytes", "256MiB", "memory for the keys of these requests; the default is a 128th of memory if that is less",
		ForServer, func(p any) value { return size{to[int64](p), 64 * kib, tib} }},
	{"kept.per-peer", "1GiB", "size of the response cache for one peer: responses that it has not acknowledged",
		ForServer, func(p any) value { return size{to[int64](p), mib, pib} }},
	{"kept.total", "0", "size of the response cache for all peers; 0 = a quarter of memory",
		ForServer, func(p any) value { return size{to[int64](p), 0, pib} }},
	{"send-bound", "256MiB", "what a step sends to a task by SendWait, in programs, before the task has it; a value counts its bytes, 256 at least",
		ForServer, func(p any) value { return size{to[int64](p), kib, pib} }},
	{"cache-rpc-response", "false", "cache responses for TensorFlow's workers, too, until MarkRecvFinished",
		ForServer, func(p any) value { return boolean{to[bool](p)} }},
	{"cpu-devices", "1", "CPU devices of this process in TensorFlow's cluster; each has an incarnation and variables of its own",
		ForServer, func(p any) value { return count{to[int](p), 1, 256} }},
	{"kernels", KernelsAuto, "kernels that run the graphs of TensorFlow masters: go, tensorflow = those of TensorFlow's library, which tryst-tensorflow opens; auto = go for tryst, tensorflow for tryst-tensorflow; none = graphs are refused",
		ForServer, func(p any) value {
			return choice{to[string](p), []string{KernelsAuto, KernelsGo, KernelsTensorFlow, KernelsNone}}
		}},
	{"max-sessions", "256", "sessions that TensorFlow masters may have here",
		ForServer, func(p any) value { return count{to[int](p), 1, maxSteps} }},
	{"max-graphs", "4096", "graphs that may be registered in a session",
		ForServer, func(p any) value { return count{to[int](p), 1, maxCount} }},
	{"max-graph-bytes", "512MiB", "size of all graphs in a session, and of the largest request with a graph or with feeds; the default is a 13th of memory if that is less",
		ForServer, func(p any) value { return size{to[int64](p), mib, 2*gib - 1} }},
	{"max-session-bytes", "4GiB", "memory of all graphs in a session that are ready to run: their constants, nodes and edges, about",
		ForServer, func(p any) value { return size{to[int64](p), mib, pib} }},
	{"max-running-steps", "1024", "steps of a session that may run at once",
		ForServer, func(p any) value { return count{to[int](p), 1, maxSteps} }},
	{"publish-mmap", "false", "map published files instead of reading them; truncating a mapped file kills the process",
		ForServer, func(p any) value { return boolean{to[bool](p)} }},
	{"digest", "xxh64", "digest of published tensors; sha256 is slower than the transfer",
		ForServer, func(p any) value { return choice{to[string](p), []string{"xxh64", "sha256"}} }},
	{"file-cache", "256MiB", "size of the cache for the contents of published files, which is used while several pulls are under way",
		ForServer, func(p any) value { return size{to[int64](p), mib, pib} }},
	{"replaced-pulls", "1m", "how long pulls of a version in memory may go on when another one has taken its place",
		ForServer, func(p any) value { return duration{to[time.Duration](p), time.Millisecond, 24 * time.Hour} }},
	{"deltas", DeltasAuto, "what a watcher of tensors in memory gets: auto = what differs from the version that it has, where that is there before the whole; none = each version whole",
		ForServer, func(p any) value { return choice{to[string](p), []string{DeltasAuto, DeltasNone}} }},
	{"otel.endpoint", "", "OTLP/gRPC collector of traces",
		both, func(p any) value { return address{to[string](p), true} }},
	{"otel.sample-ratio", "1", "fraction of the traces that is exported",
		both, func(p any) value { return ratio{to[float64](p)} }},
	{"otel.insecure", "false", "connect to the collector without TLS",
		both, func(p any) value { return boolean{to[bool](p)} }},
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
func (s Setting) Type() string { return s.value(nil).Type() }

// Limits describes the valid values, or is "" if Type is enough.
func (s Setting) Limits() string { return s.value(nil).limits() }

// IsText reports whether every text is a value, such as a path or a name.
func (s Setting) IsText() bool {
	_, ok := s.value(nil).(anyText)
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
