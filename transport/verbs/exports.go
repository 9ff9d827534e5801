package verbstransport

import (
	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/handshake"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/progress"
	"github.com/tryst-rdma/tryst/transport/verbs/internal/regmem"
)

// Types of internal packages that are part of the API of this package.

// Offer describes one end of a channel. The two processes exchange offers (Exchanger).
type Offer = handshake.Offer

// Rail is one queue pair of an Offer.
type Rail = handshake.Rail

// State is the state of the channel to a peer (Connection.State).
type State = handshake.State

// The states of a channel.
const (
	StateDown      = handshake.Down
	StateHandshake = handshake.InProgress
	StateUp        = handshake.Up
)

// TLS is how far the gRPC connections of a process are protected (Options.TLS).
type TLS = handshake.TLS

// The values of TLS: none, the server proves its name, both sides do.
const (
	NoTLS     = handshake.NoTLS
	ServerTLS = handshake.ServerTLS
	MutualTLS = handshake.MutualTLS
)

// ErrNoAddress is the error of a device whose port has lost its address (Options.Lost).
var ErrNoAddress = errNoAddress

// IsWithoutDevice reports whether err, the reason why there is no channel to a peer, is that the
// peer has no device for now.
func IsWithoutDevice(peer cluster.Task, err error) bool { return handshake.IsWithoutDevice(peer, err) }

// PollMode selects how completions are awaited (Options.Poll).
type PollMode = progress.Mode

// The poll modes: spin for a bounded time and then sleep, always spin, always sleep.
const (
	PollAdaptive = progress.ModeAdaptive
	PollBusy     = progress.ModeBusy
	PollEvent    = progress.ModeEvent
)

// ParsePollMode parses the name of a poll mode: adaptive, busy or event.
func ParsePollMode(s string) (PollMode, error) { return progress.ParseMode(s) }

// PollStats counts what the polling of a channel has done (Connection.Poll).
type PollStats = progress.Stats

// MemoryOptions configures registered memory (Options.Memory).
type MemoryOptions = regmem.Options

// PoolStats counts the memory registered for one direction (MemoryStats).
type PoolStats = regmem.PoolStats

// MemoryStats counts registered memory (Transport.Memory).
type MemoryStats = regmem.Stats

// Memlock is how much memory this process may lock (RLIMIT_MEMLOCK).
type Memlock = regmem.Memlock

// NoMemlock is the value of Memlock.Limit without a limit.
const NoMemlock = regmem.NoMemlock

// ReadMemlock reads the limit of this process, and how much of it is in use.
func ReadMemlock() (Memlock, error) { return regmem.ReadMemlock() }
