package transport

import "time"

// The numbers that all transports share, with their reasons. Each default is of a setting.
const (
	// DefaultMaxWaiting is how many receives of one requester may wait for their value. A
	// record takes about 1.6 kB at the responder when its key is of usual length, and over
	// gRPC the call that waits beside it 20 kB (waiting-kept and waiting-remote of
	// tryst-bench). A requester beyond it has a fault that more memory does not mend.
	DefaultMaxWaiting = 1_000_000

	// DefaultMaxWaitingBytes bounds the keys of those receives: the requester chooses their
	// length.
	DefaultMaxWaitingBytes = 256 << 20

	// DefaultKeptPerRequester is how many bytes of responses are kept for one requester
	// that has not acknowledged them.
	DefaultKeptPerRequester = 1 << 30

	// MaxProcessName bounds the name of a process in bytes: it is a task name, and
	// package delivery counts with it.
	MaxProcessName = 1024

	// DefaultPeerTimeout is how long a peer may be out of reach before its receives end
	// with Unavailable: longer than a switch takes to reroute, shorter than a person waits.
	DefaultPeerTimeout = 10 * time.Second
)
