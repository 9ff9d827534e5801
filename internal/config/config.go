package config

import (
	"log/slog"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Config has all settings of a process. The comment of each field states its default, unit,
// limits, and the meaning of its zero value. Most zero values stand for the default, which
// [Config.FillDefaults] sets.
//
// Copies of a Config share the cluster spec, which is immutable, and the targets of its
// pointers, which must not be changed.
type Config struct {
	// Client has the settings of every process that dials peers; a server does, too.
	Client

	// Listen is the address of the gRPC listener, HOST:PORT. Port 0 means any
	// free port, an empty host all interfaces. Zero: the default, which is the
	// address of Task in Cluster if there is one, otherwise 127.0.0.1:2222. If
	// that address is not one of this host, the server listens on all
	// interfaces at its port.
	Listen string
	// AddressFile is the path of a file to which the server writes its actual
	// address when it is ready. Default and zero: none.
	AddressFile string
	// Task is the name of this process. Default and zero:
	// /job:worker/replica:0/task:0. It must be in Cluster if that has tasks,
	// unless the task is an evaluator.
	Task cluster.Task
	// CollectiveLeader is the task that puts the groups of collective operations
	// together, as collective_group_leader of TensorFlow's ConfigProto. Default
	// and zero: task 0 of the job of Task.
	CollectiveLeader cluster.Task

	// MetricsAddress is the HTTP address that serves Prometheus metrics and the
	// probes /healthz and /readyz, HOST:PORT. Default and zero: none.
	MetricsAddress string
	// PprofAddress is the HTTP address that serves net/http/pprof, HOST:PORT.
	// Default and zero: none.
	PprofAddress string

	// ShutdownTimeout is how long a graceful stop waits for calls in progress
	// before it ends them. 1ms to 1h. Zero: the default, 10s.
	ShutdownTimeout time.Duration

	// UnaryLimit is the size in bytes above which a tensor is sent in chunks
	// instead of one message, to a peer that supports chunks. 1 KiB to
	// 2047 MiB (a protobuf message is limited to 2 GiB). Zero: the default,
	// 32 MiB.
	UnaryLimit int64
	// MaxWaiting is how many requests of one peer may wait for their value;
	// further ones end with ResourceExhausted. 1 to 1,000,000,000. Zero: the
	// default, 1,000,000.
	MaxWaiting int
	// MaxWaitingBytes bounds the keys of those requests, in bytes. 64 KiB to
	// 1 TiB. Zero: the default, 256 MiB.
	MaxWaitingBytes int64
	// KeptPerPeer bounds the responses that are kept in the response cache for
	// one peer until it acknowledges them, in bytes. 1 MiB to 1 PiB. Zero: the
	// default, 1 GiB.
	KeptPerPeer int64
	// KeptTotal bounds the response cache for all peers together, in bytes. Up
	// to 1 PiB. Default and zero: a quarter of the memory that the process
	// may use.
	KeptTotal int64
	// SendBound is the bound of SendWait: the bytes that a step has sent to one
	// task and that the task does not have yet. 1 KiB to 1 PiB. Zero: the
	// default, 256 MiB.
	SendBound int64
	// CacheRPCResponse keeps responses also for peers that are not Tryst, until
	// they send MarkRecvFinished, as TensorFlow's cache_rpc_response does.
	// Default and zero: false.
	CacheRPCResponse bool

	// CPUDevices is how many CPU devices the process has in TensorFlow's cluster. 1
	// to 256. Zero: the default, 1.
	CPUDevices int
	// Kernels runs the graphs that TensorFlow masters register: "go", "tensorflow"
	// or "auto" (Go's in tryst, TensorFlow's in tryst-tensorflow) or "none", which refuses graphs. Zero: the default, auto.
	Kernels string
	// MaxSessions is how many sessions TensorFlow masters may have. 1 to 1,000,000.
	// Zero: the default, 256.
	MaxSessions int
	// MaxGraphs is how many graphs may be registered in a session. 1 to
	// 1,000,000,000. Zero: the default, 4096.
	MaxGraphs int
	// MaxGraphBytes bounds the serialised graphs of a session, and the largest
	// message with a graph or feeds, in bytes. 1 MiB to 2 GiB - 1. Zero: the
	// default, 512 MiB.
	MaxGraphBytes int64
	// MaxSessionBytes bounds what the graphs of a session take when they are
	// ready to run, in bytes. 1 MiB to 1 PiB. Zero: the default, 4 GiB.
	MaxSessionBytes int64
	// MaxRunningSteps is how many steps of a session may run at once. 1 to
	// 1,000,000. Zero: the default, 1024.
	MaxRunningSteps int

	// PublishMMap maps published files into memory instead of reading them. A
	// mapped file that is truncated kills the process. Default and zero:
	// false.
	PublishMMap bool
	// Digest is the digest of published tensors, "xxh64" or "sha256". Zero:
	// the default, xxh64.
	Digest string
	// FileCache bounds the contents of published files kept in memory for the
	// next puller while several pulls are under way, in bytes. 1 MiB to 1 PiB.
	// Zero: the default, 256 MiB. A larger cache serves pullers that began at
	// different times.
	FileCache int64

	// sources has the values that the sources set, with the sources, by key.
	sources map[string]Given
	// ownAddress is the address of Task in Cluster if Listen was set to it.
	ownAddress string
	// ownTask is whether some source, or the program, has set Task.
	ownTask bool
	// passedOver has the names of variables that look like settings and are not.
	passedOver []string
}

// PassedOver returns the names of the environment variables that sources.Load passed over: they begin as
// those of settings do, and describe a Service of Kubernetes. The caller must not change them.
func (c *Config) PassedOver() []string { return c.passedOver }

// Client has the settings of a process that dials peers, with or without a listener.
type Client struct {
	// File is the path of the YAML file that was read. Default and zero: none.
	File string
	// Transport is the name of the transport, one of [Transports]. Zero: the
	// default, grpc.
	Transport string
	// Cluster has the tasks and their addresses. Default and zero: nil, no
	// other tasks are known.
	Cluster *cluster.Spec
	// TLS has the certificates of this process and of those that it trusts.
	// Default and zero: no TLS.
	TLS TLS
	// Keepalive sets when a silent connection is probed.
	Keepalive Keepalive
	// PeerTimeout is how long a peer may be unreachable over every transport
	// before receives from it end with Unavailable. 1ms to 1h. Zero: the
	// default, 10s.
	PeerTimeout time.Duration
	// ReleaseAfter is how long memory that is kept for reuse may be unused before it
	// goes back to the system: free blocks, registered memory, garbage. Contents
	// in the file cache go after twice that time. 1s to 24h. Zero: the default,
	// 10s.
	ReleaseAfter time.Duration
	// Memory is how many bytes the process may use. Limits that are not set fit it
	// together. Up to 1 PiB. Default and zero: the limit of the control group, or
	// the memory of the host.
	Memory int64
	// ConnectionsPerPeer is how many gRPC connections carry the traffic to one
	// peer. 1 to 64. Zero: the default, 1.
	ConnectionsPerPeer int
	// Log sets the level and format of the log.
	Log Log
	// OTel sets the export of traces.
	OTel OTel

	// The following fields have an effect with Transport verbs only.

	// Fallback is the transport for peers that verbs does not reach: "grpc", or
	// "none". With "none" receives wait for verbs up to PeerTimeout and then
	// fail. Zero: the default, grpc.
	Fallback string
	// Provider has the providers of devices, of [Providers], with commas between
	// them. Each peer gets the best one that it has too. Zero: the default,
	// auto.
	Provider string
	// SHM allows shared memory with processes of this host: "auto", or "off"
	// for none. Zero: the default, auto.
	SHM string
	// SHMDir is a directory for the sockets by which processes of different
	// network namespaces reach each other for shared memory. Default and zero:
	// none, and processes of one network namespace only.
	SHMDir string
	// RDMA chooses the device and sets how its queue pairs send.
	RDMA RDMA
	// EagerLimit is the size in bytes up to which a tensor is sent within a
	// message, which costs a copy and saves a round trip. 1 B to 1 MiB. Each
	// posted receive buffer has this size, and more. Zero: the default, 8 KiB.
	EagerLimit int64
	// Arena is the size in bytes of the regions in which memory is registered.
	// 1 MiB to 1 TiB. Zero: the default, 64 MiB.
	Arena int64
	// ArenaLimit bounds the memory that is registered for sending, and
	// separately that for receiving, in bytes. 2 MiB to 1 PiB, at least twice
	// Arena. Registered memory is locked in RAM. Zero: the default, 1 GiB,
	// or an eighth of the memory that the process may use if that is less.
	ArenaLimit int64
	// Poll is how the process waits for completions: "adaptive" spins for 50 µs,
	// then sleeps; "busy" always spins and occupies a core; "event" sleeps. With
	// [ProviderRoCE] none of them spins. Zero: the default, adaptive.
	Poll string
}

// RDMA chooses the device for verbs, and sets how its queue pairs send.
type RDMA struct {
	// Device is the name of an RDMA device (mlx5_0) or a network device
	// (eth0), or an address of this host. Default and zero: the best one.
	Device string
	// Port is the number of its port. 1 to 254. Default and zero: the best
	// one.
	Port int
	// GIDIndex is the entry of the port's GID table for the source address.
	// 0 to 255. Default and nil: the best one.
	GIDIndex *int
	// MTU is the largest payload of a packet in bytes, one of 256, 512, 1024,
	// 2048 and 4096, and at most the port's. Default and zero: the port's.
	MTU int
	// TrafficClass is the traffic class byte of the packets' IP or global
	// header. Its upper six bits are the DSCP. 0 to 255. Default and zero: 0.
	TrafficClass int
	// ServiceLevel is the InfiniBand service level, or the priority on
	// Ethernet (there 0 to 7). 0 to 15. Default and zero: 0.
	ServiceLevel int
	// PKeyIndex is the entry of the port's partition table. 0 to 65535.
	// Default and zero: 0.
	PKeyIndex int
	// Timeout is how long a device waits for an acknowledgement before it
	// retransmits a packet. Devices round it up to 4.096 µs times a power of
	// two. 8.192µs to 1m. Default and zero: 67ms, and 268ms for
	// [ProviderRoCE], [ProviderTCP] and [ProviderShm].
	Timeout time.Duration
	// Retry is how often a packet is retransmitted before the channel breaks.
	// 0 to 6; with 7 Soft-RoCE would retry forever. Nil: the default, 6.
	Retry *int
	// QueueDepth is the number of work requests in the send queue of a queue
	// pair; half as many receives are posted. 16 to 32768. Zero: the default,
	// 256.
	QueueDepth int
	// QueuePairs is the number of queue pairs for each peer. Two processes use
	// the lower of their settings. A tensor is spread over at most as many
	// queue pairs as it has MiB. 1 to 8. Default and zero: 2, and 1 for
	// [ProviderRoCE].
	QueuePairs int
}

// TLS names PEM files. A listener uses TLS if Cert and Key are set. Dialing uses TLS if
// [TLS.Enabled].
type TLS struct {
	// Cert is the path of the certificate chain of this process, which it
	// presents in both directions. It requires Key. Default and zero: none.
	Cert string
	// Key is the path of the private key of Cert. Default and zero: none.
	Key string
	// CA is the path of the certificate authorities that are trusted: for the
	// servers that this process dials, and for the client certificates of its
	// listener. Default and zero: those of the system for servers, none for
	// clients.
	CA string
	// ServerName is the expected name in the certificates of dialed servers.
	// Default and zero: the host of the address.
	ServerName string
	// RequireClientCert makes the listener refuse clients without a certificate
	// of CA: mutual TLS. It requires Cert, Key and CA. Default and zero: false,
	// a certificate is optional, and is verified if there is one.
	RequireClientCert bool
}

// Enabled reports whether this process dials with TLS: whether any of the files or
// ServerName is set.
func (t TLS) Enabled() bool {
	return t.Cert != "" || t.Key != "" || t.CA != "" || t.ServerName != ""
}

// Keepalive sets gRPC's keepalive, on both ends of a connection.
type Keepalive struct {
	// Time is how long a connection may be silent before it is probed: by a client only while
	// a call waits. 10s to 24h. Zero: the default, 30s.
	Time time.Duration
	// Timeout is how long a probe may remain unanswered before the connection
	// is closed. 1s to 1h. Zero: the default, 10s.
	Timeout time.Duration
}

// Log sets what a process logs to stderr.
type Log struct {
	// Level is the lowest level logged. Default and zero: slog.LevelInfo.
	Level slog.Level
	// Format is "text" or "json". Zero: the default, text.
	Format string
}

// OTel sets the export of OpenTelemetry traces.
type OTel struct {
	// Endpoint is the address of the OTLP/gRPC collector, HOST:PORT. Default
	// and zero: none, and nothing is traced.
	Endpoint string
	// SampleRatio is the fraction of traces that is exported. Above 0, up to 1.
	// Zero: the default, 1.
	SampleRatio float64
	// Insecure connects to the collector without TLS. Default and zero: false.
	Insecure bool
}

// Transports returns the valid values of the setting transport.
//
// Another value is InvalidArgument, as for every setting. TensorFlow's server factory returns
// NotFound for an unknown protocol.
func Transports() []string { return []string{"grpc", Verbs} }

// Providers returns the names in the setting provider.
func Providers() []string {
	return []string{ProviderAuto, ProviderLibibverbs, ProviderRoCE, ProviderTCP, ProviderShm}
}

// Default returns the default settings: one task, without a cluster, that listens on the
// loopback interface.
func Default() Config {
	var c Config
	c.FillDefaults()
	return c
}

// FillDefaults sets each field with its zero value to its default.
func (c *Config) FillDefaults() {
	var zero Config
	listens, task := c.Listen != "", c.Task != (cluster.Task{})
	for _, s := range settings {
		if v := s.value(c); v.String() == s.value(&zero).String() {
			mustSet(v, s.Default)
		}
	}
	if !listens {
		c.takeOwnAddress(task)
	}
}
