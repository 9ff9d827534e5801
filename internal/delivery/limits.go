package delivery

import "time"

// The numbers of this package, with their reasons. The defaults that an operator may change are
// in package transport.
const (
	// keptAddressPart is the part of what is kept for all that the processes at one address may have, so
	// that those of another one always have space.
	keptAddressPart = 2

	// expireAfter is how long a response outlives the last connection to its requester. A
	// host that restarts its network is back within it, and nothing is pinned for ever for
	// one that is not.
	expireAfter = 60 * time.Second

	// waitingInAll is how many times the limits of one requester all of them together may
	// reach, so that a peer that invents requesters is bounded too.
	waitingInAll = 4

	// maxCalls is how many calls may wait for one receive. A Tryst requester has one;
	// others may repeat a call a few times.
	maxCalls = 64

	// keptOverhead is charged for each response that is kept beside its tensor: for its
	// record and key, so that responses without content (errors, dead values) are bounded
	// too. It is more where the key, or the text of the error, is so long that recordSize
	// and it are more.
	keptOverhead = 512
	recordSize   = 256

	// maxProcesses is how many processes that are in no cluster may be known here: 50 MB.
	// Those without a connection are forgotten after rememberFor, so it is more than ever
	// pull from a server at a time.
	maxProcesses = 100_000

	// maxProcessesOfAddress is how many of them one address may introduce: those
	// behind a gateway, or a test that starts ten processes a second.
	maxProcessesOfAddress = 10_000

	// maxDisplaced is how many earlier processes of a name are known as such for as long
	// as the name itself.
	maxDisplaced = 16

	// sharesOfAddress is how many shares of one requester all requesters of a address
	// may have together: a host runs several processes.
	sharesOfAddress = 2

	// verifyWait bounds the call that asks which process is at the address of a task. The
	// request that waits for it can be repeated.
	verifyWait = 2 * time.Second

	// rememberFor is how long an id is remembered after its end, since copies of its
	// request may be under way. A copy can wait as long as a host can be paused while its
	// connection lives; TCP keepalive ends that in minutes.
	rememberFor = 10 * time.Minute

	// maxRemembered is how many ids are remembered for one requester, beside those of its
	// receives: 50 bytes each. By default it is as many as may wait, so that all of them
	// can be cancelled at once. CacheOptions has fewer where memory is small.
	maxRemembered = 1_000_000

	// maxUnread is how many values of one requester, of steps that have ended, Drain knows to
	// be unacknowledged: it bounds what a peer costs that acknowledges nothing.
	maxUnread = 4096

	// minTick is the least time between two looks at what has to be dropped or forgotten,
	// so that many due one after the other cost one look.
	minTick = time.Second

	// maxResent is how many transfers that were sent again are on one connection at once.
	// After a break thousands may wait; answered all at once they would need the memory of
	// all at once.
	maxResent = 64

	// widenPause is how long none of those may be answered before the window doubles: then
	// they wait for values that the peer may send only after those behind them. It is longer
	// than the round trip to a peer that is far away.
	widenPause = 100 * time.Millisecond

	// ackDelay is how long an acknowledgement waits for a request to go with, unless none came
	// for the one before.
	ackDelay = 5 * time.Millisecond

	// ackSoon is how long it waits when the peer keeps RequesterOptions.AckBytes: as long
	// as a program takes that has one value and asks for the next.
	ackSoon = 200 * time.Microsecond

	// DefaultAckBytes is how many bytes kept by the peer are worth a message of
	// acknowledgements alone, which costs a call.
	DefaultAckBytes = 64 << 20

	// maxAcksOfRequest bounds the acknowledgements in one request: 8 bytes each, so that the
	// header of a small request stays within one packet.
	maxAcksOfRequest = 128

	// maxCancelsOfRequest is how many cancelled ids go with a request, likewise. While the
	// peer has not confirmed more, requests wait.
	maxCancelsOfRequest = 128

	// maxIdleWorkers is how many goroutines are kept for the next attempts: their stacks are
	// 8 KiB or 16 KiB each.
	maxIdleWorkers = 32

	// maxBatch is how many ids are sent at once: 8 bytes each, well within the 4 MiB that a
	// gRPC message has at most.
	maxBatch = 100_000

	// closeCall is how long Close waits to reach a peer that was lost, to send cancels. A
	// peer that is there is connected sooner; one that is not must not hold up Close.
	closeCall = 300 * time.Millisecond

	// maxSameLosses is how often in a row a request may be lost with the same code, unless
	// that is the code of a connection that breaks: a proxy that restarts gives an error or
	// two.
	maxSameLosses = 3

	// helloPause is the pause between two attempts to reach a peer. It doubles up to
	// helloPauseMax: soon back after a restart, no storm at a peer that is gone. With the longest pause
	// of gRPC between two connections (transport/grpc, reconnectMax) it is less than the second after
	// which programs learn that a peer has restarted.
	helloPause    = 20 * time.Millisecond
	helloPauseMax = 400 * time.Millisecond

	// briefConn is how long a connection is one that has just come up, until it has carried a
	// response: longer than a queue pair takes to give up a packet (7 times 268 ms), and than a
	// request takes to break it.
	briefConn = 3 * time.Second

	// briefTimeouts is for how many peer timeouts connections may come up and carry nothing: a network that
	// cuts each of them on a busy machine gets longer than one that is gone.
	briefTimeouts = 3

	// helloWait bounds one Hello, so that an address that swallows packets is tried again
	// in time.
	helloWait = 2 * time.Second

	// drainGrace is how long a requester may be without a connection, and its address not
	// reached, before Drain gives it up: longer than a channel or a connection takes to come
	// back. drainPause is the pause between two calls of its address.
	drainGrace = 2 * time.Second
	drainPause = 500 * time.Millisecond

	// peerVisits is how many receives from one peer Requester.Waiting looks at. It holds the lock of the peer
	// meanwhile, for some tens of microseconds at most.
	peerVisits = 1024

	// quietPoll is the pause between two looks in Close and Drain.
	quietPoll = time.Millisecond
)
