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

	// maxRequest is the longest message that a server takes, unpacked: nobody asks in more
	// (checkpoint's maxOpenNames and transport's maxSaid reckon with it), and what has millions
	// of ids would take the time of everybody. gRPC's own limit.
	maxRequest = 4 << 20

	// maxAskersOf is how many askers a connection stands for: one, or those behind a proxy.
	// Beyond it those that have nothing here are forgotten until they ask again.
	maxAskersOf = 1024

	// maxCopies bounds the copies among the answers under way on one connection: encoded
	// strings, manifests and keys. Twice what a connection has on its way at most, so that
	// a client that reads never waits for it.
	maxCopies = 64 << 20

	// maxServiceCalls and maxAddressCalls bound the calls of a service that clients need
	// rarely (LimitCalls), of one connection and of all from one address: a stream of Open for
	// each pull under way, a watch of the health for each balancer.
	maxServiceCalls = 64
	maxAddressCalls = 1024

	// maxConnections bounds the connections of one address: gRPC's buffers for one take
	// 0.75 MiB. A host has a few for each process, a gateway one for each client behind it.
	maxConnections = 1024

	// moreStreams is how many calls a connection may have beside the receives that may wait,
	// so that one receive too many gets its refusal in words rather than no stream.
	moreStreams = 4096

	// copyLimit is the content up to which it is copied behind the header
	// rather than lent, as in TensorFlow. gRPC does not call a buffer's pool
	// at this size or below, so a lent tensor would never come back.
	copyLimit = 1024

	// chunkSize is the content of one message of Chunks/Fetch: small beside
	// the memory that both sides may take for a transfer, and large beside
	// what a message costs.
	chunkSize = 1 << 20

	// growth is how far ahead of what has come the buffer of a serialised tensor
	// may be, beside doubling: a chunk, so that the first one has room.
	growth = chunkSize

	// reconnectMin and reconnectMax bound the pause before a connection is
	// tried again: soon back after a restart, no storm at a peer that is gone.
	reconnectMin = 50 * time.Millisecond
	reconnectMax = time.Second

	// connectMax bounds one try to connect: the look-up of a name, for which Go waits 5 s
	// when the first name server is away, TCP, TLS and until the peer's HTTP/2 is heard.
	// gRPC's own bound. A server gives a client as long for TLS and HTTP/2.
	connectMax = 20 * time.Second

	// tcpMax bounds TCP to one address, so that a host that swallows packets is tried anew
	// soon: a lost SYN is sent again after 1 s and after 3 s. Where a host has several
	// addresses each but the last has reconnectMax.
	tcpMax = 4 * time.Second

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

// Buffers and windows, measured against each other in turns over loopback on two
// cores, at 1 and 16 MiB with 1 and 4 in flight.
const (
	// writeBuffer and readBuffer are what one system call moves. 256 KiB gave
	// 1.1 to 1.2 times the throughput of 64 KiB, and more of it no more.
	writeBuffer = 256 << 10
	readBuffer  = 256 << 10

	// frameSize is the content of grpc-go's largest frames.
	frameSize = 16 << 10
	// maxIdleFrames bounds the buffers for frames that are kept for the next
	// transfer: as many as arrive ahead of one receiver.
	maxIdleFrames = streamWindow / frameSize

	// streamWindow is what a sender may be ahead of the receiver on one call,
	// and so what a transfer costs the receiver beside its tensor. Windows
	// that gRPC estimates by itself (it does when they are not set) start at
	// 64 KiB and gave 0.6 to 0.8 of the throughput of any fixed one from 1 MiB
	// on.
	streamWindow = 4 << 20
	// requestWindow is what a client may send ahead on one call, and so what each call may
	// hold before its request is read: gRPC's smallest. Requests fit into it but for long
	// lists of names and ids.
	requestWindow = 64<<10 - 1

	// connWindow bounds what is on its way on a connection, for all calls
	// together. gRPC opens it again as soon as bytes are read, so it has to
	// cover a round trip and holds no memory for long.
	connWindow = 16 << 20

	// streamWorkers is how many goroutines a server keeps for calls, beyond
	// which each call gets one of its own. A new one has its stack grown and
	// copied three times on the way to the rendezvous: with kept ones a receive
	// of 8 bytes took 0.92 of the time. Receives that wait hold theirs, so
	// there are more than are answered at once.
	streamWorkers = 16
)
