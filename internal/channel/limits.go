package channel

import "time"

// The numbers of this package, with their reasons. Those that an operator may change are
// defaults of Config.
const (
	// MinWindow is the smallest window. Two credits are reserved for CREDIT, so two
	// messages can be in flight. Half the window is two: a single CREDIT does not
	// cause another CREDIT, so that they do not go back and forth for ever.
	MinWindow = 4
	// MaxWindow is the largest window that a peer may offer (handshake.MaxWindow). It is
	// far below 2³¹, so that differences of counts are unambiguous.
	MaxWindow = 1 << 18

	// MaxMessage is the longest message: a content of 1 MiB, the largest eager limit
	// that can be set, and what surrounds it. A larger content is better written.
	MaxMessage = 1<<20 + 64<<10

	// MinSendQueue has space for the reserve and for some work requests of each kind.
	MinSendQueue = 16
	// MaxSendQueue is the number of slots that a verbs.WRID can encode.
	MaxSendQueue = 1 << 20

	// creditReserve is the number of credits on rail 0 that are reserved for CREDIT.
	// Without them, two sides that both wait for credits could not send any.
	creditReserve = 2

	// sendReserve is the number of places of a send queue that are reserved for CREDIT,
	// CANCEL, ACK and probes: one for each.
	sendReserve = 4

	// DefaultMaxWaiting is the most receives without a response, as in every transport
	// (transport.DefaultMaxWaiting). More end with ResourceExhausted.
	DefaultMaxWaiting = 1_000_000

	// DefaultMaxMetas is the most keys of which the last value is remembered, at about
	// 300 bytes each. A model has fewer large tensors.
	DefaultMaxMetas = 16_384

	// DefaultChunk is the length of one write. Processing its completion takes about a
	// microsecond; a chunk takes 40 µs at 100 Gbit/s.
	DefaultChunk = 512 << 10
	// MinChunk is one page. Below it the overhead dominates.
	MinChunk = 4096
	// MaxChunk is the longest message of RDMA, 2³¹ bytes, less one page, so that a chunk
	// has whole pages.
	MaxChunk = 1<<31 - 4096

	// DefaultOutstanding is the most bytes of writes in flight on a rail. A small message
	// that is posted after them waits for them: 0.3 ms at 100 Gbit/s. They keep the
	// device busy while a completion waits to be polled.
	DefaultOutstanding = 4 << 20

	// stripeUnit is the least that a rail carries of a content: with less, another rail
	// costs more messages than it saves time. Shares are multiples of pageSize. Both
	// sides must use the same numbers (PROTOCOL.md section 8.5).
	stripeUnit = 1 << 20
	pageSize   = 4096

	// DefaultQuarantineBytes is the most memory of cancelled receives that waits for the
	// peer's confirmation. The shell sets a quarter of its receive pool.
	DefaultQuarantineBytes = 1 << 30

	// quarantineTime is how long such memory waits before the channel closes
	// (ARCHITECTURE.md section 4).
	quarantineTime = 10 * time.Second

	// helloTime is how long a channel waits for the peer's HELLO.
	helloTime = 10 * time.Second

	// probeAfter is how long nothing may arrive while something is outstanding, before a
	// write of length 0 checks that the peer's device responds.
	probeAfter = time.Second

	// queryAfter is how long a receive waits for a response before QUERY checks whether
	// the peer knows it. queryTime is how long the peer may take to answer QUERY.
	queryAfter = 30 * time.Second
	queryTime  = 10 * time.Second

	// stallTime is how long messages may wait for credits while the peer's counts do not
	// change: it is stopped, or its counts are wrong. It is as long as a receive waits at
	// most whose request is posted and not answered.
	stallTime = queryAfter + queryTime

	// destTime is how long a peer may take from META to REREQUEST, while this side holds
	// the content. It is the longest wait for anything from a healthy peer.
	destTime = stallTime

	// repostPart is the part of a window, one eighth, that is posted again at once. A cgo
	// call for each message would delay its response.
	repostPart = 8

	// ackDelay is how long acknowledged ids that came with a request wait for it when it
	// cannot be posted yet. Then they are sent in ACK.
	ackDelay = 5 * time.Millisecond

	// CountsDelay is how long counts that the peer requested by WANT_COUNTS wait for a
	// message that carries them. Then they are sent in CREDIT.
	CountsDelay = 5 * time.Millisecond

	// byeTime is how long a BYE may take to be posted and to complete.
	byeTime = time.Second
)
