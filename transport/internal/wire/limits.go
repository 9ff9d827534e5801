package wire

// The numbers of the format. PROTOCOL.md section 8 has them too.
const (
	// Version is what the first byte of every message says: the version that the
	// sides agreed on at bootstrap. Sides without a common one open no channel.
	Version = 4

	// MaxRails is how many queue pairs one channel has at most: two ports of
	// four devices. Each costs four bytes in every message.
	MaxRails = 8

	// MinMessage is the least that a posted receive holds, in bytes. META
	// with 254 dimensions takes 2160 at most, ERROR with the longest text
	// 3200; so only keys and payloads can be too long for a message.
	MinMessage = 4096

	// MaxHeaderAcks is how many finished ids ride on a message of another kind:
	// 1 KiB, so that they do not crowd out what they ride on.
	MaxHeaderAcks = 128

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
