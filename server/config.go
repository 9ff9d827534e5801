package server

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
)

// The values of Config.Transport.
const (
	TransportAuto  = "auto"
	TransportGRPC  = "grpc"
	TransportVerbs = "verbs"
)

// The values of Config.Fallback.
const (
	FallbackGRPC = "grpc"
	FallbackNone = "none"
)

// The names in Config.Provider. Several are separated by commas: ProviderTCP + "," + ProviderSHM.
const (
	// ProviderAuto means every device that works here: ProviderLibibverbs if an RDMA port is active,
	// otherwise ProviderRoCE, and beside it ProviderTCP and ProviderSHM.
	ProviderAuto = "auto"
	// ProviderLibibverbs has the devices of the kernel, through rdma-core's library.
	ProviderLibibverbs = "libibverbs"
	// ProviderRoCE has a device in user space on each network interface.
	ProviderRoCE = "roce"
	// ProviderTCP has a device whose queue pairs are TCP connections.
	ProviderTCP = "tcp"
	// ProviderSHM has a device that reaches processes of this host over shared memory.
	ProviderSHM = "shm"
)

// The values of Config.SHM.
const (
	SHMAuto = "auto"
	SHMOff  = "off"
)

// The values of RDMA.Poll.
const (
	PollAdaptive = "adaptive"
	PollBusy     = "busy"
	PollEvent    = "event"
)

// The values of Publications.Digest.
const (
	DigestXXH64  = "xxh64"
	DigestSHA256 = "sha256"
)

// The values of Publications.Deltas: what differs from the version that a watcher has, or each version whole.
const (
	DeltasAuto = "auto"
	DeltasNone = "none"
)

// Config is the settings of Start and Dial. A field with its zero value takes the default. The tag of a
// field is the key of the setting: docs/settings.md has its limits.
//
//	server.Config{
//		Listen:    ":2222",
//		Cluster:   map[string][]string{"worker": {"a:2222", "b:2222"}},
//		Task:      "/job:worker/task:0",
//		Transport: server.TransportVerbs,
//	}
type Config struct {
	// Listen is the address of the server, HOST:PORT; port 0 is any free one. Default: the address of
	// Task in Cluster, on all interfaces if this host does not have it; otherwise 127.0.0.1:2222.
	Listen string `setting:"listen"`
	// Cluster has the addresses of the tasks of each job: task 0 first, or NUMBER@HOST:PORT. Task is one of
	// them, and for verbs each of two peers must be in the Cluster of the other. Default: no peers.
	Cluster map[string][]string `setting:"cluster"`
	// Task is the name of this process in Cluster. Default: "/job:worker/task:0".
	Task string `setting:"task"`

	// CPUDevices is how many CPU devices this process has in TensorFlow's cluster; Options.Kernels runs
	// their graphs. Default: 1.
	CPUDevices int `setting:"cpu-devices"`

	// Transport carries the tensors: "verbs" is shared memory, RDMA or TCP, the best for each peer, and gRPC by
	// Fallback; "auto" is verbs where both sides have it and gRPC otherwise, and what is missing on this host or at a
	// peer is no warning; "grpc" is gRPC alone. With "auto" a provider or device that the settings name has to exist;
	// TLS leaves RDMA to a setting that names it. With Fallback "none" somebody has asked for verbs: "auto" then needs a
	// device, connects to all tasks at the start and warns as "verbs" does, and still takes no RDMA in user space, and
	// under TLS none at all, that no setting names.
	// Default: "auto".
	Transport string `setting:"transport"`
	// Fallback replaces verbs for peers that it does not reach: "grpc", or "none" to wait, and fail after
	// PeerTimeout, or at once if the peer has no verbs, or nothing in Provider in common. It is about what this process
	// receives: a peer with another setting may still fetch values from here over gRPC, so set it on both sides.
	// Default: "grpc". Used with verbs only, so that a flag can swap the transport.
	Fallback string `setting:"fallback"`
	// Provider has the devices for verbs, with commas between them: "libibverbs", "roce", "tcp", "shm", or
	// "auto" for all that work here. Each peer is reached by the best one that both sides have. Default:
	// "auto". Used with verbs only.
	Provider string `setting:"provider"`
	// SHM allows shared memory with processes of this host that have the same user, or whose name mutual
	// TLS proves: "auto" or "off". Default: "auto". Used with verbs only.
	SHM string `setting:"shm"`
	// SHMDir is the absolute path of a directory for the sockets by which processes of different network
	// namespaces, such as containers, reach each other for shared memory. Default: none. Used with verbs only.
	SHMDir string `setting:"shm-dir"`
	// RDMA chooses the device and sets how it sends. Used with verbs only.
	RDMA RDMA
	// GRPC sets how connections are used. They also set up verbs.
	GRPC GRPC
	// TLS has the certificates. Default: none, and no TLS. Tensors that go by RDMA are never encrypted.
	TLS TLS

	// CollectiveLeader is the task that puts groups of collective operations together; it must be the same at all
	// members. Default: task 0 of the job of Task.
	CollectiveLeader string `setting:"collective-leader"`

	// PeerTimeout is how long a peer may be unreachable before receives from it fail. Default: 10s.
	PeerTimeout time.Duration `setting:"peer-timeout"`
	// ShutdownTimeout is how long Server.Close waits for calls in progress. Default: 10s.
	ShutdownTimeout time.Duration `setting:"shutdown-timeout"`
	// ReleaseAfter is how long memory that is kept for reuse may be unused before it goes back to the
	// system. Default: 10s.
	ReleaseAfter time.Duration `setting:"release-after"`
	// Memory is how many bytes the process may use. Limits that are not set fit it together. Default: the limit of
	// the control group, or the memory of the host.
	Memory int64 `setting:"memory"`

	// MetricsAddress serves a page (/), /api/status, /metrics, /healthz and /readyz over HTTP, HOST:PORT. Default: none.
	MetricsAddress string `setting:"metrics-address"`
	// PprofAddress serves net/http/pprof, HOST:PORT. Default: none.
	PprofAddress string `setting:"pprof-address"`
	// AddressFile is a file that gets the address of the server when it is ready. Default: none.
	AddressFile string `setting:"address-file"`

	// Publications sets how a server reads the files that it publishes.
	Publications Publications
	// Limits bounds what peers can make a server keep.
	Limits Limits
}

// RDMA is the part of Config for the transport verbs.
type RDMA struct {
	// Device is an RDMA device (mlx5_0), a network device (eth0) or a local address. Default: the best one.
	Device string `setting:"rdma.device"`
	// Port is the port of the device, from 1. Default: the best one.
	Port int `setting:"rdma.port"`
	// GIDIndex is the entry of the port's GID table for the source address, such as new(3). Default: the best one.
	GIDIndex *int `setting:"rdma.gid-index"`
	// MTU is the largest payload of a packet, in bytes. Default: that of the port.
	MTU int `setting:"rdma.mtu"`
	// TrafficClass is the traffic class byte: the DSCP and two bits of ECN. Default: 0.
	TrafficClass int `setting:"rdma.traffic-class"`
	// ServiceLevel is the service level on InfiniBand, the priority on Ethernet. Default: 0.
	ServiceLevel int `setting:"rdma.service-level"`
	// PKeyIndex is the entry of the port's partition table. Default: 0.
	PKeyIndex int `setting:"rdma.pkey-index"`
	// Timeout is the time without an acknowledgement after which a packet is retransmitted. Default: 67ms,
	// and 268ms for the providers roce, tcp and shm.
	Timeout time.Duration `setting:"rdma.timeout"`
	// Retry is the number of retransmissions before the channel breaks, such as new(0). Default: 6.
	Retry *int `setting:"rdma.retry"`
	// QueueDepth is the number of work requests in a send queue. Default: 256.
	QueueDepth int `setting:"rdma.queue-depth"`
	// QueuePairs is the number of queue pairs for each peer. Default: 2, and 1 for the provider roce.
	QueuePairs int `setting:"rdma.queue-pairs"`
	// Poll is how to wait for completions: "adaptive" spins for 50 µs (100 µs over shared memory), "busy" always (1 ms), "event" never. Default: "adaptive".
	Poll string `setting:"poll"`
	// EagerLimit is the size in bytes up to which a tensor is sent within a message. Default: 8 KiB.
	EagerLimit int64 `setting:"eager-limit"`
	// Arena is the size in bytes of the regions in which memory is registered. Default: 64 MiB.
	Arena int64 `setting:"arena"`
	// ArenaLimit bounds the memory in bytes that is registered for sending, and that for receiving. Default: 1 GiB,
	// or an eighth of Config.Memory if that is less.
	ArenaLimit int64 `setting:"arena-limit"`
}

// GRPC is the part of Config for gRPC connections.
type GRPC struct {
	// ConnectionsPerPeer is how many connections carry the traffic to one peer. Default: 1.
	ConnectionsPerPeer int `setting:"connections-per-peer"`
	// KeepaliveTime is how long a connection may be silent before it is probed, by a client while a
	// call waits. Default: 30s.
	KeepaliveTime time.Duration `setting:"keepalive.time"`
	// KeepaliveTimeout is how long a probe may remain unanswered. Default: 10s.
	KeepaliveTimeout time.Duration `setting:"keepalive.timeout"`
	// UnaryLimit is the size in bytes above which a server sends a tensor in chunks. Default: 32 MiB.
	UnaryLimit int64 `setting:"unary-limit"`
	// CacheRPCResponse keeps the responses to TensorFlow's workers until they send MarkRecvFinished.
	CacheRPCResponse bool `setting:"cache-rpc-response"`
}

// TLS names PEM files. A server listens with TLS if Cert and Key are set; any field makes a process
// dial with TLS. docs/tls.md explains the combinations.
type TLS struct {
	// Cert is the certificate chain of this process, for both directions.
	Cert string `setting:"tls.cert"`
	// Key is the private key of Cert.
	Key string `setting:"tls.key"`
	// CA has the authorities that are trusted to sign certificates of peers. Default: those of the system.
	CA string `setting:"tls.ca"`
	// ServerName is the expected name in the certificates of servers. Default: the host of the address.
	ServerName string `setting:"tls.server-name"`
	// RequireClientCert makes a server refuse clients without a certificate signed by CA (mutual TLS).
	RequireClientCert bool `setting:"tls.require-client-cert"`
}

// Publications is the part of Config for what is published.
type Publications struct {
	// Digest of each tensor: "xxh64" or "sha256". Default: "xxh64".
	Digest string `setting:"digest"`
	// MMap maps the files instead of reading them. Truncating a mapped file kills the process.
	MMap bool `setting:"publish-mmap"`
	// FileCache bounds the contents that are kept for the next client while several pull, in bytes.
	// Default: 256 MiB.
	FileCache int64 `setting:"file-cache"`
	// ReplacedPulls is how long pulls of a version in memory may go on when another one has taken its place. Default: 1m.
	ReplacedPulls time.Duration `setting:"replaced-pulls"`
	// Deltas is what a watcher gets that has a version: "auto" for what differs from it, where that is there before the whole, or
	// "none" for each version whole. Default: "auto".
	Deltas string `setting:"deltas"`
}

// Limits is the part of Config that bounds what a server keeps for its peers.
type Limits struct {
	// MaxWaiting is how many requests of one peer may wait for their value. Default: 1,000,000.
	MaxWaiting int `setting:"max-waiting"`
	// MaxWaitingBytes bounds the keys of these requests, in bytes. Default: 256 MiB.
	MaxWaitingBytes int64 `setting:"max-waiting-bytes"`
	// KeptPerPeer bounds the responses that one peer has not acknowledged, in bytes. Default: 1 GiB.
	KeptPerPeer int64 `setting:"kept.per-peer"`
	// KeptTotal bounds those of all peers, in bytes. Default: a quarter of memory.
	KeptTotal int64 `setting:"kept.total"`
	// SendBound bounds what a step has sent to a task that the task does not have yet, in bytes: SendWait
	// waits beyond it. A value counts the bytes of its memory, 256 at least. Default: 256 MiB.
	SendBound int64 `setting:"send-bound"`
}

// GraphLimits bounds what TensorFlow masters make a server with kernels keep (Options.Kernels). A field with
// its zero value takes the default.
type GraphLimits struct {
	// MaxSessions is how many sessions TensorFlow masters may have. Default: 256.
	MaxSessions int `setting:"max-sessions"`
	// MaxGraphs is how many graphs may be registered in a session. Default: 4096.
	MaxGraphs int `setting:"max-graphs"`
	// MaxGraphBytes bounds the graphs of a session, and the largest request with a graph or with feeds, in
	// bytes. Default: 512 MiB.
	MaxGraphBytes int64 `setting:"max-graph-bytes"`
	// MaxSessionBytes bounds what the graphs of a session take when they are ready to run, with their constants,
	// in bytes. Default: 4 GiB.
	MaxSessionBytes int64 `setting:"max-session-bytes"`
	// MaxRunningSteps is how many steps of a session may run at once. Default: 1024.
	MaxRunningSteps int `setting:"max-running-steps"`
}

// WithDefaults returns c with the default in each field that is not set, for reading. Start and Dial take
// the settings as they are: limits that are not set fit the memory of the process.
func (c Config) WithDefaults() Config {
	config.Bind(&c).FillDefaults()
	return c
}

// ForClient returns c without the settings of servers, which Dial refuses.
func (c Config) ForClient() Config {
	config.Bind(&c).Restrict(config.ForClient)
	return c
}

// WithDefaults returns l with the default in each field that is not set.
func (l GraphLimits) WithDefaults() GraphLimits {
	config.Bind(&l).FillDefaults()
	return l
}
