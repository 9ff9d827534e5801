package grpctransport

import (
	"math"
	"time"
)

// The numbers of this package, with their reasons.
const (
	// DefaultUnaryLimit is the size above which a tensor goes in chunks to a
	// client that takes them. gRPC holds a whole message before it is decoded,
	// so one message costs the receiver its size twice; up to here that is
	// little, and one round trip is saved.
	DefaultUnaryLimit = 32 << 20

	// maxMessage is the largest message either way: protobuf's limit, which
	// is also what TensorFlow's servers and clients set.
	maxMessage = math.MaxInt32

	// copyLimit is the content up to which it is copied behind the header
	// rather than lent, as in TensorFlow. gRPC does not call a buffer's pool
	// at this size or below, so a lent tensor would never come back.
	copyLimit = 1024

	// chunkSize is the content of one message of Chunks/Fetch: small beside
	// the memory that both sides may take for a transfer, and large beside
	// what a message costs.
	chunkSize = 1 << 20

	// reconnectMin and reconnectMax bound the pause before a connection is
	// tried again: soon back after a restart, no storm at a peer that is gone.
	reconnectMin = 50 * time.Millisecond
	reconnectMax = time.Second

	// ackWait bounds MarkRecvFinished to a peer that is not Tryst: the answer
	// is here, and the peer lets its copy go with the step anyway.
	ackWait = 10 * time.Second

	// keepaliveProbes is how many TCP probes the keepalive timeout has room
	// for: one that is lost on the way does not end a connection.
	keepaliveProbes = 3

	// pingMin is the shortest interval of HTTP/2 pings that the server
	// takes from a client.
	pingMin = 5 * time.Second
)

// Buffers and windows, set by measurement (BenchmarkRecvTensor): on two cores
// over loopback larger ones brought nothing.
const (
	writeBuffer  = 64 << 10
	readBuffer   = 64 << 10
	streamWindow = 8 << 20
	connWindow   = 16 << 20
)
