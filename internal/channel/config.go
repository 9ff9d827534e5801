package channel

import (
	"fmt"

	"github.com/tryst-rdma/tryst/internal/wire"
)

// Config has what both sides agreed on at bootstrap, and settings of the operator. Zero
// fields of the second part take the defaults of limits.go.
type Config struct {
	// Peer is the task name of the peer, for errors.
	Peer string
	// Generation is that of the channel, not 0.
	Generation uint64
	// OwnIncarnation and PeerIncarnation are those of the two processes, not 0.
	OwnIncarnation, PeerIncarnation uint64
	// Rails is the number of queue pairs, 1 to wire.MaxRails. Rail 0 carries the control
	// messages.
	Rails int
	// Apart keeps contents off rail 0, if there are others: in a queue pair a message cannot
	// overtake the writes before it, which matters where they are slow (TCP). Both sides have
	// the same.
	Apart bool
	// Window is the number of receives posted on each rail here, PeerWindow at the peer.
	// At least MinWindow.
	Window, PeerWindow int
	// Message is the size in bytes of each of these receives, PeerMessage at the peer.
	// At least wire.MinMessage.
	Message, PeerMessage int
	// Eager is the largest content in bytes that is sent within a message: the lower
	// offer of both sides.
	Eager int
	// SendQueue is the number of work requests that the send queue of each rail holds.
	// At least MinSendQueue.
	SendQueue int

	MaxWaiting      int   // most receives without a response, and most requests of the peer
	MaxMetas        int   // most keys of which the last value is remembered
	Chunk           int   // most bytes of one write
	LongChunk       int   // the same of a content of at least twice as many bytes
	Outstanding     int64 // most bytes of writes in flight on one rail
	QuarantineBytes int64 // most bytes of destinations in quarantine; beyond it the channel closes
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
	if c.LongChunk == 0 {
		c.LongChunk = c.Chunk
	}
	if c.Outstanding == 0 {
		c.Outstanding = DefaultOutstanding
	}
	if c.QuarantineBytes == 0 {
		c.QuarantineBytes = DefaultQuarantineBytes
	}
	for _, f := range []struct {
		what        string
		value       int64
		least, most int64
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
		{"bytes of a write of a long content", int64(c.LongChunk), int64(c.Chunk), MaxChunk},
		{"bytes in flight", c.Outstanding, int64(c.LongChunk), 1 << 40},
		{"quarantined bytes", c.QuarantineBytes, 1, 1 << 62},
	} {
		if f.value < f.least || f.value > f.most {
			return fmt.Errorf("channel to %s: %s = %d, want %d to %d", c.Peer, f.what, f.value, f.least, f.most)
		}
	}
	if c.Generation == 0 || c.OwnIncarnation == 0 || c.PeerIncarnation == 0 {
		return fmt.Errorf("channel to %s with generation %d between incarnations %016x and %016x: none may be 0",
			c.Peer, c.Generation, c.OwnIncarnation, c.PeerIncarnation)
	}
	return nil
}
