package channel

import (
	"fmt"

	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// Config is what both sides agreed on at bootstrap and what the operator chose.
// Zero fields of the second half take the defaults of limits.go.
type Config struct {
	// Peer names the peer in errors.
	Peer string
	// Generation is the channel's, not 0.
	Generation uint64
	// OwnIncarnation and PeerIncarnation are the two processes.
	OwnIncarnation, PeerIncarnation uint64
	// Rails is how many queue pairs the channel has, 1 to wire.MaxRails.
	// Control messages go over rail 0.
	Rails int
	// Window is how many receives are posted on each rail: here, and at the
	// peer. At least MinWindow.
	Window, PeerWindow int
	// Message is how many bytes each of them holds. At least wire.MinMessage.
	Message, PeerMessage int
	// Eager is the largest content in bytes that is sent within a message:
	// the less of what both sides offered.
	Eager int
	// SendQueue is how many work requests the send queue of each rail holds.
	// At least MinSendQueue.
	SendQueue int

	MaxWaiting      int   // receives without an answer, and requests of the peer likewise
	MaxMetas        int   // values whose meta-data is remembered
	Chunk           int   // bytes of one write
	Outstanding     int64 // bytes of writes under way on one rail
	QuarantineBytes int64 // of destinations of cancelled receives; beyond it the channel ends
}

func (c *Config) complete() error {
	if c.MaxWaiting == 0 {
		c.MaxWaiting = DefaultMaxWaiting
	}
	if c.MaxMetas == 0 {
		c.MaxMetas = DefaultMaxMetas
	}
	if c.Chunk == 0 {
		c.Chunk = DefaultChunk
	}
	if c.Outstanding == 0 {
		c.Outstanding = DefaultOutstanding
	}
	if c.QuarantineBytes == 0 {
		c.QuarantineBytes = DefaultQuarantineBytes
	}
	for _, f := range []struct {
		what        string
		is, atLeast int64
		atMost      int64
	}{
		{"rails", int64(c.Rails), 1, wire.MaxRails},
		{"receives posted", int64(c.Window), MinWindow, MaxWindow},
		{"receives posted at the peer", int64(c.PeerWindow), MinWindow, MaxWindow},
		{"bytes of a receive", int64(c.Message), wire.MinMessage, MaxMessage},
		{"bytes of a receive at the peer", int64(c.PeerMessage), wire.MinMessage, MaxMessage},
		{"bytes of the eager limit", int64(c.Eager), 0, MaxMessage},
		{"send queue", int64(c.SendQueue), MinSendQueue, MaxSendQueue},
		{"waiting receives", int64(c.MaxWaiting), 1, 1 << 31},
		{"remembered values", int64(c.MaxMetas), 1, 1 << 31},
		{"bytes of a write", int64(c.Chunk), MinChunk, MaxChunk},
		{"bytes under way", c.Outstanding, int64(c.Chunk), 1 << 40},
		{"quarantined bytes", c.QuarantineBytes, 1, 1 << 62},
	} {
		if f.is < f.atLeast || f.is > f.atMost {
			return fmt.Errorf("a channel to %s with %s = %d: %d to %d are possible", c.Peer, f.what, f.is, f.atLeast, f.atMost)
		}
	}
	if c.Generation == 0 || c.OwnIncarnation == 0 || c.PeerIncarnation == 0 {
		return fmt.Errorf("a channel to %s with generation %d between incarnations %016x and %016x: none is ever 0",
			c.Peer, c.Generation, c.OwnIncarnation, c.PeerIncarnation)
	}
	return nil
}
