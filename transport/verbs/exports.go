package verbstransport

import (
	"github.com/tryst-rdma/tryst/transport/verbs/mem"
	"github.com/tryst-rdma/tryst/transport/verbs/pairing"
	"github.com/tryst-rdma/tryst/transport/verbs/poll"
)

// This file names the types of internal packages that are part of this package's API.

// Offer is one end of a channel, as the two processes exchange it. An Exchanger carries it.
type Offer = pairing.Offer

// Rail is one queue pair of an Offer.
type Rail = pairing.Rail

// State is the state of the channel to a peer (Link.State).
type State = pairing.State

// The states of a channel.
const (
	StateDown    = pairing.Down
	StatePairing = pairing.Pairing
	StateUp      = pairing.Up
)

// PollMode selects how completions are awaited (Options.Poll).
type PollMode = poll.Mode

// The poll modes: spin for a bounded time and then sleep, always spin, always sleep.
const (
	PollAdaptive = poll.ModeAdaptive
	PollBusy     = poll.ModeBusy
	PollEvent    = poll.ModeEvent
)

// ParsePollMode parses the name of a poll mode: adaptive, busy or event.
func ParsePollMode(s string) (PollMode, error) { return poll.ParseMode(s) }

// PollStats counts what the polling of a channel has done (Link.Poll).
type PollStats = poll.Stats

// MemoryOptions configures registered memory (Options.Memory).
type MemoryOptions = mem.Options

// MemoryStats counts registered memory (Transport.Memory).
type MemoryStats = mem.Stats

// Memlock is how much memory this process may lock (RLIMIT_MEMLOCK).
type Memlock = mem.Memlock

// NoMemlock is the value of Memlock.Limit without a limit.
const NoMemlock = mem.NoMemlock

// ReadMemlock reads the limit of this process, and how much of it is in use.
func ReadMemlock() (Memlock, error) { return mem.ReadMemlock() }
