package grpctransport

import (
	"math"
	"time"
)

// The numbers of this package, with their reasons.
const (
	// DefaultUnaryLimit is the size in bytes above which a client that accepts chunks gets a
	// tensor in chunks. gRPC holds a whole message before it is decoded, so a tensor in one
	// message needs its size twice at the receiver. Below the limit that is little memory,
	// and it saves a round trip.
	DefaultUnaryLimit = 32 << 20

	// maxMessage is the largest message that is sent, and that a client receives, in bytes:
	// protobuf's limit. TensorFlow's servers and clients set the same.
	maxMessage = math.MaxInt32

	// maxRequest is the largest message that a server receives, in bytes after decompression:
	// gRPC's own limit. No request needs more (checkpoint's maxOpenNames and delivery's
	// maxBatch stay below it) but those with graphs and feeds, which have MaxGraph of
	// ServerTuning. A message with millions of ids would delay all clients.
	maxRequest = 4 << 20

	// requestsOfGraph is how many requests of MaxGraph may be under way, in bytes of all requests, where
	// ServerTuning has no RequestBytes; minRequests has space for some thousand calls where MaxGraph is
	// small.
	requestsOfGraph = 8
	minRequests     = 256 << 20
	// largeShare of largeShareOf is the part of a limit that requests above requestWindow may take.
	largeShare, largeShareOf = 7, 8

	// floodFactor is how many times the limit of an address its requests may take until connections end that
	// take floodPart of the limit or more. Calls are refused from the limit on: a client that has many at
	// once gets errors for them, and goes on.
	floodFactor = 4
	floodPart   = 16

	// callBytes is what a call takes in gRPC while it waits for its request or its value, in bytes:
	// stream, goroutine, contexts and some headers, measured at 12 KiB, and firstBytes of its request.
	callBytes  = 16 << 10
	firstBytes = 4 << 10
	// headerFactor is what a byte of a block of headers may become: one byte refers to a field that came
	// before.
	headerFactor = 64
	// frameBytes is what a DATA frame takes in gRPC beside its content until the message has come whole.
	frameBytes = 256
	// chargeStep is what a request is charged with at a time, so that tiny frames cost little.
	chargeStep = 4 << 10

	// maxAnswer is the largest response of a call that says nothing else, in bytes after decompression: the default of
	// every gRPC client. More may come in answer to RecvTensor, RecvBuf and RunGraph (tensors), CompleteGroup
	// (members), Logging and Tracing (records), and Describe and List (manifests; in internal/checkpoint).
	maxAnswer = 4 << 20
	// maxMembers is the largest response with the members of a group: 65,536 devices of 256 bytes (internal/collective).
	maxMembers = 16 << 20
	// maxRecords is the largest response with records: 65,536 transfers of 1 KiB.
	maxRecords = 64 << 20
	// maxChunkAnswer is the largest message of Chunks/Fetch, with its tags.
	maxChunkAnswer = chunkSize + 1<<10
	// answerStep is how much is reserved for responses at least, and answerSteps the part by which it grows, so that a
	// large one is some hundred reservations at most.
	answerStep  = 64 << 10
	answerSteps = 16
	// copyFactor is what a byte takes that is appended to a growing slice, and restFactor what one takes of the fields
	// of a RecvTensorResponse beside its tensor, which are copied and parsed twice.
	copyFactor = 2
	restFactor = 6
	// wholeBytes is what a message takes beside its frames while it waits to be parsed: a record of it.
	wholeBytes = 128

	// requestTime is how long a request may take for requestProgress more bytes, and a frame to come
	// whole: 4 KiB/s on the slowest link, and longer than TCP takes to get over a few lost packets.
	requestTime     = time.Minute
	requestProgress = 256 << 10

	// responseTime is how long a client that has responses to read may take for responseProgress more bytes
	// of them. A process that is stopped is gone sooner, by the keepalive.
	responseTime     = time.Minute
	responseProgress = 256 << 10

	// requestHeaders is the size of the headers of a request in bytes, with 32 for each header: the
	// default that gRPC's specification suggests (PROTOCOL-HTTP2.md, Requests). A byte may stand for a
	// header of 4 KiB that came before.
	requestHeaders = 8 << 10

	// maxHeaders is the size of the headers of an error in bytes, with 32 for each header
	// (RFC 9113, 6.5.2): TensorFlow's gRPC refuses more, and the peer would get another error.
	maxHeaders = 8 << 10
	// otherHeaders is the part of maxHeaders for the headers beside grpc-message and the
	// payloads, and for the names of these two. gRPC and Tryst write some 300 bytes.
	otherHeaders = 512

	// answerHeaders is the size of the headers of a response at a client in bytes, with 32 for each header.
	// Errors of Tryst have maxHeaders. gRPC's C core, so TensorFlow, refuses as much as this in any case
	// (GRPC_ARG_ABSOLUTE_MAX_METADATA_SIZE). grpc-go parses details of errors without a limit, and by default
	// takes 16 MiB.
	answerHeaders = 16 << 10

	// maxRequestersPerConn is how many requesters are bound to one connection. Usually it is
	// one; a proxy has one for each process behind it. At the limit the requesters without
	// anything in the response cache are unbound until their next request.
	maxRequestersPerConn = 1024

	// maxCopies bounds the copied bytes among the unsent responses on one connection, such
	// as encoded strings, manifests and keys. It is a multiple of connWindow, so that a
	// client that reads is not slowed down by it.
	maxCopies = 64 << 20

	// maxServiceCallsPerConn and maxServiceCallsPerAddress bound the calls in progress of a
	// service under LimitCalls. A client has one stream of Open for each pull, a load balancer
	// one health watch.
	maxServiceCallsPerConn    = 64
	maxServiceCallsPerAddress = 1024

	// ConnectionBytes is what an accepted connection takes in bytes: the buffer for reading, goroutines and tables, and
	// part of the time a buffer for writing.
	ConnectionBytes = 256 << 10
	// maxConnsPerAddress bounds the connections of one address. A host has a few for each process, a gateway one for
	// each client behind it.
	maxConnsPerAddress = 1024
	// newcomersPart is the part of all connections that only addresses with fewer than newcomerConns get, so that a few
	// hosts cannot take all.
	newcomersPart = 4
	newcomerConns = 4
	// refusingUntil is the number of connections at which the refusal of more is over, so that
	// the next one is logged again.
	refusingUntil = maxConnsPerAddress * 7 / 8

	// extraStreams is how many calls a connection may have in addition to the waiting
	// receives. So a receive above MaxWaiting gets an error with a reason; without a free
	// stream it would wait in the client.
	extraStreams = 4096

	// copyLimit is the size in bytes up to which content is copied behind the header rather
	// than lent, as in TensorFlow. gRPC does not return buffers up to this size to their
	// pool, so a lent tensor would not be released.
	copyLimit = 1024

	// loanSweep is the interval at which a server looks for responses that gRPC has dropped, while
	// gRPC holds some. A reader at full speed has a response sooner, and what waits for the space
	// of a dropped one waits for two or three intervals.
	loanSweep = 250 * time.Millisecond
	// maxCollectPause bounds the pause between two garbage collections that look for them, while
	// a client reads slowly. A pause is at least collectShare times as long as a collection.
	maxCollectPause = 8 * time.Second
	collectShare    = 20

	// chunkSize is the content of one message of Chunks/Fetch in bytes: small compared with
	// the memory that a transfer may use, large compared with the cost of a message.
	chunkSize = 1 << 20

	// growth is added when the buffer of a serialised tensor doubles, in bytes. It has space
	// for the first chunk.
	growth = chunkSize

	// reconnectMin and reconnectMax bound the pause between two attempts to connect: short
	// enough to reconnect soon after a restart, long enough not to load an absent peer. gRPC makes a
	// pause up to a fifth longer.
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 400 * time.Millisecond

	// unneededMin and unneededMax bound the pause where no call is under way, and none was within neededFor: a receive
	// that waits for an absent peer looks for it more often than that. What calls the peer seldom, such as a handshake
	// that has failed for long, finds the connection of a peer that has come back.
	neededFor   = 2 * time.Second
	unneededMin = time.Second
	unneededMax = 5 * time.Second
	// wokenWait is how long the call that ends such a pause waits for the attempt: a peer that is back answers within it,
	// and one that is gone costs the call no more.
	wokenWait = time.Second

	// connectMax bounds one attempt to connect: name look-up (Go waits 5 s for a name server
	// before it tries the next one), TCP, TLS and the peer's HTTP/2 settings. It is gRPC's own
	// default. A server gives a client the same time for TLS and HTTP/2.
	connectMax = 20 * time.Second

	// tcpMax bounds the TCP connect to one address, or to the last one of a host with
	// several; the others have tcpFirst. It covers the retransmissions of a lost SYN after
	// 1 s and 3 s. A host that drops all packets is tried again soon.
	tcpMax   = 4 * time.Second
	tcpFirst = time.Second

	// reasonWait is how long a write that has failed before the server's first frame waits for
	// the reason that the server has sent, which has arrived or is under way.
	reasonWait = 500 * time.Millisecond

	// greetingMin and greetingMax are the fewest and most bytes of a client that a server
	// without TLS reads before it serves it. Every client sends greetingMin bytes at once;
	// greetingMax holds the first line of a request of HTTP/1.
	greetingMin = 8
	greetingMax = 512

	// firstFrameMax bounds how long a queue pair's connection may take for its first frame, and
	// maxWithoutFrame how many connections may be without it.
	firstFrameMax   = 10 * time.Second
	maxWithoutFrame = 256

	// refusalWait and refusalBytes bound how long a server waits for a refused client to read
	// the answer, and what it reads meanwhile.
	refusalWait  = 500 * time.Millisecond
	refusalBytes = 64 << 10

	// refusalPause is the shortest interval of log lines about refused connections of one
	// kind from one address. In that time there are at most maxRefusalLines in all: enough to
	// see a wrong setting on many hosts, too few to hide the rest of the log. maxRefusals bounds
	// the memory for addresses and kinds.
	refusalPause    = time.Minute
	maxRefusalLines = 60
	maxRefusals     = 1024

	// ackWait bounds MarkRecvFinished to a peer that is not Tryst. Without it the peer
	// releases its copy at the end of the step.
	ackWait = 10 * time.Second

	// DefaultRest is how long connections with Bounds may be without a call: longer than most pauses between two
	// steps, and short enough that connections to tasks that are not used any more make space for others.
	DefaultRest = time.Minute
	// PeerConnectionBytes is what a connection that this process makes takes in bytes: the buffers for reading and
	// writing, goroutines and tables.
	PeerConnectionBytes = readBuffer + writeBuffer + 64<<10

	// keepaliveProbes is the number of TCP probes within the keepalive timeout: one lost
	// probe does not end a connection.
	keepaliveProbes = 3

	// pingMin is the shortest interval of HTTP/2 pings that the server accepts.
	pingMin = 5 * time.Second
)

// Buffers and windows, chosen by measurement over loopback with tensors of 1 and 16 MiB.
const (
	// writeBuffer and readBuffer are the most bytes that one system call moves. Smaller ones
	// cost throughput; larger ones gain none.
	writeBuffer = 256 << 10
	readBuffer  = 256 << 10
	// serverReadBuffer is that of a server, for each connection: requests are small, and a stranger opens connections
	// for nothing.
	serverReadBuffer = 32 << 10

	// frameSize is the content of grpc-go's largest frames.
	frameSize = 16 << 10
	// maxIdleFrames bounds the frame buffers that are kept for the next transfer: those of
	// one full streamWindow.
	maxIdleFrames = streamWindow / frameSize

	// streamWindow is the HTTP/2 window of one call at a client: the bytes that may be sent
	// before the receiver reads them. A transfer needs this memory in addition to its tensor.
	// It is set because the windows that gRPC estimates start at 64 KiB and are slower.
	streamWindow = 4 << 20
	// requestWindow is the window of one call at a server, gRPC's smallest. It bounds what a
	// call may hold before its request is read. Requests fit into it except those with long
	// lists of names or ids.
	requestWindow = 64<<10 - 1

	// connWindow is the window of one connection, for all calls together. gRPC reopens it as
	// soon as it has received the bytes, so it must only cover a round trip.
	connWindow = 16 << 20

	// streamWorkers is the number of goroutines that a server keeps for calls. A call beyond
	// them gets a new goroutine, whose stack must grow first. Waiting receives occupy a
	// goroutine, so there are more than can run at once.
	streamWorkers = 16
)
