package tryst

import "github.com/tryst-rdma/tryst/server"

// Config is the settings of Serve and Dial. A field with its zero value takes the default:
//
//	tryst.Config{
//		Listen:    ":2222",
//		Cluster:   map[string][]string{"worker": {"a:2222", "b:2222"}},
//		Task:      "/job:worker/task:0",
//		Transport: tryst.TransportVerbs,
//	}
//
// go doc tryst/server.Config shows its fields, and docs/settings.md has their limits.
type Config = server.Config

// The parts of Config. go doc shows the fields of each in package server.
type (
	// RDMA is the part for the transport verbs.
	RDMA = server.RDMA
	// GRPC is the part for gRPC connections.
	GRPC = server.GRPC
	// TLS names PEM files.
	TLS = server.TLS
	// Publications is the part for what is published.
	Publications = server.Publications
	// Limits bounds what a server keeps for its peers.
	Limits = server.Limits
)

// GraphLimits bounds what TensorFlow masters make a server keep (WithGraphLimits).
type GraphLimits = server.GraphLimits

// The values of Config.Transport and Config.Fallback.
const (
	TransportAuto  = server.TransportAuto
	TransportGRPC  = server.TransportGRPC
	TransportVerbs = server.TransportVerbs
	FallbackGRPC   = server.FallbackGRPC
	FallbackNone   = server.FallbackNone
)

// The names in Config.Provider, with commas between several. Package server says what each of them has.
const (
	ProviderAuto       = server.ProviderAuto
	ProviderLibibverbs = server.ProviderLibibverbs
	ProviderRoCE       = server.ProviderRoCE
	ProviderTCP        = server.ProviderTCP
	ProviderSHM        = server.ProviderSHM
)

// The values of Config.SHM, RDMA.Poll and Publications.Digest.
const (
	SHMAuto      = server.SHMAuto
	SHMOff       = server.SHMOff
	PollAdaptive = server.PollAdaptive
	PollBusy     = server.PollBusy
	PollEvent    = server.PollEvent
	DigestXXH64  = server.DigestXXH64
	DigestSHA256 = server.DigestSHA256
)

// The values of Publications.Deltas: what differs from the version that a watcher has, or each version whole.
const (
	DeltasAuto = server.DeltasAuto
	DeltasNone = server.DeltasNone
)
