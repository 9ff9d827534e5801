package config

import (
	"log/slog"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
)

// Config is all settings of a process. Of each field is said: its default, its
// unit, its limits, and what its zero value means. Most zero values stand for
// the default, which [Config.FillDefaults] puts in.
//
// A Config is a value: copies share only the cluster spec, which is immutable,
// and what pointers lead to, which nobody changes.
type Config struct {
	// Client is what every process that dials peers needs; a server does.
	Client

	// Listen is the address of the gRPC listener, HOST:PORT. Port 0 takes a
	// free one, an empty host every interface. Zero: the default,
	// 127.0.0.1:2222.
	Listen string
	// AddressFile is the path of a file that receives the listener's real
	// address once it listens. Default and zero: none is written.
	AddressFile string
	// Task is the name of this process. Default and zero:
	// /job:worker/replica:0/task:0. It stands in Cluster when that has tasks,
	// an evaluator's apart.
	Task cluster.Task

	// MetricsAddress is where HTTP serves Prometheus metrics, HOST:PORT.
	// Default and zero: nowhere.
	MetricsAddress string
	// PprofAddress is where HTTP serves net/http/pprof, HOST:PORT. Default
	// and zero: nowhere.
	PprofAddress string

	// ShutdownTimeout is how long a graceful stop waits for calls under way
	// before it ends them. 1ms to 1h. Zero: the default, 10s.
	ShutdownTimeout time.Duration

	// UnaryLimit is the size in bytes above which a tensor goes to a peer
	// that takes chunks in chunks, not in one message. 1 KiB to 2047 MiB
	// (a protobuf message ends at 2 GiB). Zero: the default, 32 MiB.
	UnaryLimit int64
	// MaxWaiting is how many receives of one peer may wait for their value;
	// beyond it they end with ResourceExhausted. 1 to 1,000,000,000. Zero:
	// the default, 1,000,000.
	MaxWaiting int
	// MaxWaitingBytes bounds the keys of those receives, in bytes. 64 KiB to
	// 1 TiB. Zero: the default, 256 MiB.
	MaxWaitingBytes int64
	// KeptPerPeer bounds the answers kept for one peer that has not said that
	// it has them, in bytes. 1 MiB to 1 PiB. Zero: the default, 1 GiB.
	KeptPerPeer int64
	// KeptTotal bounds the answers kept for all peers together, in bytes. Up
	// to 1 PiB. Default and zero: a quarter of the memory that the process
	// may use, which the server finds out.
	KeptTotal int64
	// CacheRPCResponse keeps answers also for peers that are not Tryst, until
	// they say MarkRecvFinished, as TensorFlow's cache_rpc_response does.
	// Default and zero: false.
	CacheRPCResponse bool

	// PublishMMap maps published files into memory instead of reading them. A
	// mapped file that is truncated kills the process. Default and zero:
	// false.
	PublishMMap bool
	// Digest is the digest of published tensors, "xxh64" or "sha256". Zero:
	// the default, xxh64.
	Digest string
	// FileCache bounds the contents of published files kept in memory for the
	// next puller, in bytes. 1 MiB to 1 PiB. Zero: the default, 256 MiB: more
	// serves pullers that come together a little faster, and costs the first
	// one the time to touch the memory.
	FileCache int64

	// sources is what Load set and from where, by key. Nil: nothing.
	sources map[string]given
}

// Client is the settings of a process that dials peers, whether it also serves
// or only pulls.
type Client struct {
	// File is the path of the YAML file that was read. Default and zero: none
	// is.
	File string
	// Transport is the name of the wire, one of [Transports]. Zero: the
	// default, grpc.
	Transport string
	// Cluster says which tasks there are and where they listen. Default and
	// zero: nil, no other tasks are known.
	Cluster *cluster.Spec
	// TLS is the identity of this process and whom it trusts. Default and
	// zero: no TLS.
	TLS TLS
	// Keepalive says when a silent connection is probed.
	Keepalive Keepalive
	// PeerTimeout is how long no wire may reach a peer before receives from
	// it end with Unavailable. 1ms to 1h. Zero: the default, 10s.
	PeerTimeout time.Duration
	// ConnectionsPerPeer is how many connections a peer is spread over. 1 to
	// 64. Zero: the default, 1.
	ConnectionsPerPeer int
	// Log says what is logged and how.
	Log Log
	// OTel says where traces go.
	OTel OTel

	// What follows matters to Transport verbs alone.

	// Fallback is what carries the tensors of a peer that verbs does not
	// reach: "grpc", or "none", with which receives wait for verbs and then
	// fail. Zero: the default, grpc.
	Fallback string
	// Provider is where the device comes from, one of [Providers]. Zero: the
	// default, auto.
	Provider string
	// RDMA chooses the device and says how its queue pairs send.
	RDMA RDMA
	// EagerLimit is the size in bytes up to which a tensor travels within a
	// message, which costs a copy and saves a round trip. 1 B to 1 MiB; each
	// posted receive has room for it. Zero: the default, 8 KiB.
	EagerLimit int64
	// Arena is how much memory is registered at once, in bytes. 1 MiB to
	// 1 TiB. Zero: the default, 64 MiB.
	Arena int64
	// ArenaLimit is the most that is registered for sending, and as much
	// again for receiving, in bytes. 2 MiB to 1 PiB, at least twice Arena.
	// Registered memory is locked in RAM. Zero: the default, 1 GiB.
	ArenaLimit int64
	// Poll is how completions are waited for: "adaptive" spins for 50 µs,
	// then sleeps, "busy" spins always and takes a core, "event" sleeps.
	// On the device in software none spins.
	// Zero: the default, adaptive.
	Poll string
}

// RDMA is the device that verbs uses, and how it sends.
type RDMA struct {
	// Device is the name of an RDMA device (mlx5_0) or a network device
	// (eth0), or an address of this host. Default and zero: the best one.
	Device string
	// Port is the number of its port. 1 to 254. Default and zero: the best
	// one.
	Port int
	// GIDIndex is the entry of the port's GID table that packets come from.
	// 0 to 255. Default and nil: the best one.
	GIDIndex *int
	// MTU is the largest payload of a packet in bytes, one of 256, 512, 1024,
	// 2048 and 4096, and at most the port's. Default and zero: the port's.
	MTU int
	// TrafficClass is that byte of the packets' IP or global header; its upper
	// six bits are the DSCP. 0 to 255. Default and zero: 0.
	TrafficClass int
	// ServiceLevel is the InfiniBand service level, or the priority on
	// Ethernet (there 0 to 7). 0 to 15. Default and zero: 0.
	ServiceLevel int
	// PKeyIndex is the entry of the port's partition table. 0 to 65535.
	// Default and zero: 0.
	PKeyIndex int
	// Timeout is the wait for an acknowledgement before a packet is sent
	// again. Devices round it up to 4.096 µs times a power of two. 8.192µs to
	// 1m. Default and zero: 67ms, and 268ms for [ProviderRoCE].
	Timeout time.Duration
	// Retry is how often it is sent again before the channel counts as
	// broken. 0 to 6: Soft-RoCE takes 7 for "for ever". Nil: the default, 6.
	Retry *int
	// QueueDepth is how many work requests the send queue of a queue pair
	// holds; half as many receives are posted. 16 to 32768. Zero: the
	// default, 256.
	QueueDepth int
	// QueuePairs is how many there are for each peer; two processes have the
	// fewer of what they say. A tensor goes over as many of them at once as it
	// has MiB. 1 to 8. Default and zero: 2, and 1 for [ProviderRoCE].
	QueuePairs int
}

// TLS names PEM files. A listener has TLS when it has Cert and Key; dialing
// has TLS when [TLS.Enabled].
type TLS struct {
	// Cert is the path of the certificate chain of this process, shown to
	// those who dial it and to those it dials. With Key or not at all.
	// Default and zero: none.
	Cert string
	// Key is the path of the private key of Cert. Default and zero: none.
	Key string
	// CA is the path of the certificates that vouch for peers, for those
	// that are dialed and for those that dial and show a certificate. Default
	// and zero: the system's for the former, none for the latter.
	CA string
	// ServerName is the name expected in the certificate of a peer that is
	// dialed. Default and zero: the host of its address.
	ServerName string
	// RequireClientCert makes the listener refuse whoever shows no
	// certificate that CA vouches for: mutual TLS. It needs Cert, Key and
	// CA. Default and zero: false, a certificate is checked when one is
	// shown.
	RequireClientCert bool
}

// Enabled reports whether peers are dialed with TLS: any of the files or the
// name of the peer is given.
func (t TLS) Enabled() bool {
	return t.Cert != "" || t.Key != "" || t.CA != "" || t.ServerName != ""
}

// Keepalive is gRPC's keepalive, on both ends of a connection.
type Keepalive struct {
	// Time is the silence after which a connection is probed. 10s to 24h: a
	// client of gRPC takes nothing shorter. Zero: the default, 30s.
	Time time.Duration
	// Timeout is how long the probe's answer may take before the connection
	// is given up. 1s to 1h. Zero: the default, 10s.
	Timeout time.Duration
}

// Log is what a process says on stderr.
type Log struct {
	// Level is the lowest level logged. Default and zero: slog.LevelInfo.
	Level slog.Level
	// Format is "text" or "json". Zero: the default, text.
	Format string
}

// OTel is the export of OpenTelemetry traces.
type OTel struct {
	// Endpoint is the OTLP/gRPC collector, HOST:PORT. Default and zero: no
	// exporter is configured, and nothing is traced.
	Endpoint string
	// SampleRatio is which part of the traces is kept. Above 0, up to 1.
	// Zero: the default, 1.
	SampleRatio float64
	// Insecure talks to the collector without TLS. Default and zero: false.
	Insecure bool
}

// Transports returns the names that the setting transport may have. It is the
// one list of them.
//
// Another name is InvalidArgument, and not NotFound as an unknown protocol is to
// TensorFlow's server factory: here it is a setting, judged with all others and
// reported beside them, before there is anything to be found.
func Transports() []string { return []string{"grpc", Verbs} }

// Providers returns the names that the setting provider takes.
func Providers() []string { return []string{ProviderAuto, ProviderLibibverbs, ProviderRoCE} }

// Default returns the settings of a process that was told nothing: one task,
// without a cluster, that listens on the loopback interface.
func Default() Config {
	var c Config
	c.FillDefaults()
	return c
}

// FillDefaults gives each field that has its zero value its default.
func (c *Config) FillDefaults() {
	var zero Config
	for _, s := range settings {
		if v := s.value(c); v.String() == s.value(&zero).String() {
			mustSet(v, s.Default)
		}
	}
}
