package wire

// The numbers of the format. PROTOCOL.md section 8 has them too.
const (
	// Version is what the first byte of every message says. Sides that
	// differ have found out at bootstrap and do not open a channel.
	Version = 1

	// MaxRails is how many queue pairs one channel has at most: two ports of
	// four devices. Each costs four bytes in every message.
	MaxRails = 8

	// MinMessage is the least that a posted receive holds, in bytes. META
	// with 254 dimensions takes 2160 at most, ERROR with the longest text
	// 3200; so only keys and payloads can be too long for a message.
	MinMessage = 4096

	// MaxRiders is how many finished ids ride on a message of another kind:
	// 1 KiB, so that they do not crowd out what they ride on.
	MaxRiders = 128

	// KeyNumbers is how many keys have a number at once on a channel, in each
	// direction: those of the steps of a usual program. Who answers keeps the text of
	// each, of MaxKey at most.
	KeyNumbers = 64

	// MaxKey is the longest rendezvous key in bytes: its length has two. One of
	// usual length has 150; one that is longer is asked for over another wire.
	MaxKey = 1<<16 - 1

	// MaxText is the longest text of a BYE in bytes. It is for a log line.
	MaxText = 1024
)

const (
	headerFixed = 12
	idSize      = 8
)
