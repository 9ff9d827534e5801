package wire

import "github.com/tryst-rdma/tryst/status"

// The numbers of the format. All are in PROTOCOL.md section 8.
const (
	// Version is the first byte of every message: the version that the sides agreed on
	// at bootstrap. Without a common version no channel opens.
	Version = 4

	// MaxRails is the most queue pairs of a channel: two ports of four devices. Each
	// takes four bytes in every message.
	MaxRails = 8

	// MinMessage is the least size in bytes of a posted receive. META with 254
	// dimensions takes at most 2160, ERROR with the longest text 3200: only keys and
	// payloads can be too long for a message.
	MinMessage = 4096

	// MaxHeaderAcks is the most acknowledged ids in the header of a message other than
	// ACK: 1 KiB, so that enough space is left for the body.
	MaxHeaderAcks = 128

	// MaxKey is the longest rendezvous key in bytes: its length field has two. Usual
	// keys have about 150. A request with a longer key goes over gRPC.
	MaxKey = 1<<16 - 1

	// MaxText is the longest reason of a BYE in bytes: a line of a log.
	MaxText = 1024
)

const (
	headerFixed = 12 // bytes of a header before counts and acks
	idSize      = 8
)

// maxErrorText is the most bytes that status.Truncate leaves: 3 KiB and its mark.
const maxErrorText = status.MaxMessage + 32
