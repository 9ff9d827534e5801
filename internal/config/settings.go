package config

import (
	"slices"
	"strings"
	"time"
)

// Use says which processes a setting matters to.
type Use uint8

// The kinds of processes.
const (
	// ForClient is a process that dials peers: pull, keys, bench.
	ForClient Use = 1 << iota
	// ForServer is a process that listens: serve.
	ForServer
)

// String returns "client", "server" or both.
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

const both = ForClient | ForServer

// Setting describes one setting.
type Setting struct {
	// Key is its name, and its path in the YAML file.
	Key string
	// Default is its value when no source gives one, as a flag would.
	Default string
	// Help is what it does, half a sentence.
	Help string
	// Use says whom it matters to.
	Use Use

	value func(*Config) value // the field that it sets
}

// The limits that are no round numbers for their own sake.
const (
	kib int64 = 1 << 10
	mib int64 = 1 << 20
	gib int64 = 1 << 30
	tib int64 = 1 << 40
	pib int64 = 1 << 50

	// maxUnary is what fits a protobuf message, which ends at 2 GiB, and
	// leaves 1 MiB for what else is in it.
	maxUnary = 2*gib - mib

	// minKeepalive is the shortest that grpc-go's client takes; it raises a
	// shorter one in silence.
	minKeepalive = 10 * time.Second

	// minTimeout is code 1 of the specification (InfiniBand, volume 1, 11.6.2);
	// code 0 means for ever. maxTimeout times the retries is how long a dead
	// peer may look alive.
	minTimeout = 8192 * time.Nanosecond
	maxTimeout = time.Minute

	// maxCount keeps a count within an int on every machine.
	maxCount = 1_000_000_000
)

// settings is the table. Its order is that of docs/settings.md.
var settings = []Setting{
	{"config", "", "YAML file with settings",
		both, func(c *Config) value { return anyText{&c.File, "path"} }},
	{"transport", "grpc", "wire that tensors take",
		both, func(c *Config) value { return choice{&c.Transport, Transports()} }},
	{"listen", "127.0.0.1:2222", "address that the server listens on; port 0 takes a free one",
		ForServer, func(c *Config) value { return address{&c.Listen, false} }},
	{"address-file", "", "file to write the listening address to",
		ForServer, func(c *Config) value { return anyText{&c.AddressFile, "path"} }},
	{"cluster", "", "all tasks and their addresses: worker=h1:2222,h2:2222;ps=7@h3:2222",
		both, func(c *Config) value { return spec{&c.Cluster} }},
	{"task", "/job:worker/replica:0/task:0", "name of this process",
		ForServer, func(c *Config) value { return task{&c.Task} }},
	{"metrics-address", "", "address that serves Prometheus metrics over HTTP",
		ForServer, func(c *Config) value { return address{&c.MetricsAddress, true} }},
	{"pprof-address", "", "address that serves net/http/pprof",
		ForServer, func(c *Config) value { return address{&c.PprofAddress, true} }},
	{"log.level", "info", "lowest level that is logged; pull and keys begin at warn where it is not set",
		both, func(c *Config) value { return level{&c.Log.Level} }},
	{"log.format", "text", "format of the log on stderr",
		both, func(c *Config) value { return choice{&c.Log.Format, []string{"text", "json"}} }},
	{"tls.cert", "", "PEM file with the certificate chain of this process",
		both, func(c *Config) value { return anyText{&c.TLS.Cert, "path"} }},
	{"tls.key", "", "PEM file with the private key of tls.cert",
		both, func(c *Config) value { return anyText{&c.TLS.Key, "path"} }},
	{"tls.ca", "", "PEM file with the certificates that vouch for peers",
		both, func(c *Config) value { return anyText{&c.TLS.CA, "path"} }},
	{"tls.server-name", "", "name expected in the certificate of a dialed peer instead of its host",
		both, func(c *Config) value { return anyText{&c.TLS.ServerName, "name"} }},
	{"tls.require-client-cert", "false", "refuse who shows no certificate that tls.ca vouches for (mutual TLS)",
		ForServer, func(c *Config) value { return boolean{&c.TLS.RequireClientCert} }},
	{"keepalive.time", "30s", "silence after which a connection is probed",
		both, func(c *Config) value { return duration{&c.Keepalive.Time, minKeepalive, 24 * time.Hour} }},
	{"keepalive.timeout", "10s", "wait for the answer to a probe before the connection is given up",
		both, func(c *Config) value { return duration{&c.Keepalive.Timeout, time.Second, time.Hour} }},
	{"shutdown-timeout", "10s", "wait of a graceful stop for the calls under way",
		ForServer, func(c *Config) value { return duration{&c.ShutdownTimeout, time.Millisecond, time.Hour} }},
	{"peer-timeout", "10s", "time that a peer may be out of reach before receives from it fail",
		both, func(c *Config) value { return duration{&c.PeerTimeout, time.Millisecond, time.Hour} }},
	{"fallback", "grpc", "what carries tensors where verbs does not reach; with none they wait for verbs and then fail",
		both, func(c *Config) value { return choice{&c.Fallback, []string{"grpc", "none"}} }},
	{"provider", ProviderAuto, "where verbs takes its device from: auto is an active RDMA port by libibverbs, or else roce, a device in software on UDP",
		both, func(c *Config) value { return choice{&c.Provider, Providers()} }},
	{"rdma.device", "", "RDMA device, network device or own address that verbs uses; empty = the best",
		both, func(c *Config) value { return anyText{&c.RDMA.Device, "name"} }},
	{"rdma.port", "0", "port of the device; 0 = the best",
		both, func(c *Config) value { return count{&c.RDMA.Port, 0, 254} }},
	{"rdma.gid-index", "", "entry of the port's GID table that packets come from",
		both, func(c *Config) value { return maybeCount{&c.RDMA.GIDIndex, 0, 255, "empty = the best", nil} }},
	{"rdma.mtu", "0", "payload of a packet in bytes, at most the port's; 0 = the port's",
		both, func(c *Config) value { return oneOf{&c.RDMA.MTU, []int{0, 256, 512, 1024, 2048, 4096}} }},
	{"rdma.traffic-class", "0", "traffic class of packets; its upper six bits are the DSCP, the two low ones ECN: 0 not capable, 1 and 2 capable",
		both, func(c *Config) value { return trafficClass{count{&c.RDMA.TrafficClass, 0, 255}} }},
	{"rdma.service-level", "0", "service level on InfiniBand, priority on Ethernet (0 to 7)",
		both, func(c *Config) value { return count{&c.RDMA.ServiceLevel, 0, 15} }},
	{"rdma.pkey-index", "0", "entry of the port's partition table",
		both, func(c *Config) value { return count{&c.RDMA.PKeyIndex, 0, 65535} }},
	{"rdma.timeout", "0s", "wait for an acknowledgement; devices round up to 4.096µs times a power of two; 0 = 67ms, and 268ms for roce",
		both, func(c *Config) value { return maybeDuration{duration{&c.RDMA.Timeout, minTimeout, maxTimeout}} }},
	{"rdma.retry", "6", "how often a packet is sent again before the channel counts as broken",
		both, func(c *Config) value { return maybeCount{&c.RDMA.Retry, 0, 6, "", noRetryForEver} }},
	{"rdma.queue-depth", "256", "work requests that a send queue holds; half as many receives are posted",
		both, func(c *Config) value { return count{&c.RDMA.QueueDepth, 16, 32768} }},
	{"rdma.queue-pairs", "0", "queue pairs for each peer: tensors of 2 MiB and more go over several at once, smaller ones over each in turn; 0 = 2, and 1 for roce",
		both, func(c *Config) value { return count{&c.RDMA.QueuePairs, 0, 8} }},
	{"eager-limit", "8KiB", "size up to which a tensor travels within a message of verbs",
		both, func(c *Config) value { return size{&c.EagerLimit, 1, mib} }},
	{"arena", "64MiB", "memory that is registered at once",
		both, func(c *Config) value { return size{&c.Arena, mib, tib} }},
	{"arena-limit", "1GiB", "memory that is registered at most for sending, and again for receiving",
		both, func(c *Config) value { return size{&c.ArenaLimit, 2 * mib, pib} }},
	{"poll", "adaptive", "how completions are waited for: spinning for a moment, always, or never",
		both, func(c *Config) value { return choice{&c.Poll, []string{"adaptive", "busy", "event"}} }},
	{"connections-per-peer", "1", "connections that the traffic to one peer is spread over",
		both, func(c *Config) value { return count{&c.ConnectionsPerPeer, 1, 64} }},
	{"unary-limit", "32MiB", "size above which a tensor goes in chunks to a peer that takes them",
		ForServer, func(c *Config) value { return size{&c.UnaryLimit, kib, maxUnary} }},
	{"max-waiting", "1000000", "receives of one peer that may wait for their value",
		ForServer, func(c *Config) value { return count{&c.MaxWaiting, 1, maxCount} }},
	{"max-waiting-bytes", "256MiB", "memory for the keys of these receives",
		ForServer, func(c *Config) value { return size{&c.MaxWaitingBytes, 64 * kib, tib} }},
	{"kept.per-peer", "1GiB", "answers kept for one peer until it has them",
		ForServer, func(c *Config) value { return size{&c.KeptPerPeer, mib, pib} }},
	{"kept.total", "0", "answers kept for all peers together; 0 = a quarter of memory",
		ForServer, func(c *Config) value { return size{&c.KeptTotal, 0, pib} }},
	{"cache-rpc-response", "false", "keep answers for TensorFlow's workers, too, until MarkRecvFinished",
		ForServer, func(c *Config) value { return boolean{&c.CacheRPCResponse} }},
	{"publish-mmap", "false", "map published files; a mapped file that is truncated kills the process",
		ForServer, func(c *Config) value { return boolean{&c.PublishMMap} }},
	{"digest", "xxh64", "digest of published tensors; sha256 is slower than the transfer",
		ForServer, func(c *Config) value { return choice{&c.Digest, []string{"xxh64", "sha256"}} }},
	{"file-cache", "256MiB", "contents of published files kept in memory for the next puller",
		ForServer, func(c *Config) value { return size{&c.FileCache, mib, pib} }},
	{"otel.endpoint", "", "OTLP/gRPC collector that traces go to",
		both, func(c *Config) value { return address{&c.OTel.Endpoint, true} }},
	{"otel.sample-ratio", "1", "part of the traces that is kept",
		both, func(c *Config) value { return ratio{&c.OTel.SampleRatio} }},
	{"otel.insecure", "false", "talk to the collector without TLS",
		both, func(c *Config) value { return boolean{&c.OTel.Insecure} }},
}

// Settings returns the table of all settings.
func Settings() []Setting { return slices.Clone(settings) }

// Flag returns the name of the setting's flag, without dashes before it.
func (s Setting) Flag() string { return strings.ReplaceAll(s.Key, ".", "-") }

// Env returns the name of the setting's environment variable.
func (s Setting) Env() string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.Key))
}

// Type returns the kind of the value: "duration", "size", "host:port" and so
// on.
func (s Setting) Type() string { return s.value(new(Config)).Type() }

// Limits returns which values are taken, or "" when Type says it all.
func (s Setting) Limits() string { return s.value(new(Config)).limits() }

// InFile reports whether the YAML file may give the setting: it does not say
// which file is read.
func (s Setting) InFile() bool { return s.Key != configKey }

// byKey returns the setting of a key.
func byKey(key string) (Setting, bool) {
	i := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
	if i < 0 {
		return Setting{}, false
	}
	return settings[i], true
}
