package channel

import "time"

// The numbers of this package, with their reasons. Those that an operator may
// change are defaults of Config.
const (
	// MinWindow is the least number of receives: with the two credits that are
	// CREDIT's own, two messages can be under way and half of it is two, so
	// that CREDITs which answer CREDITs die out.
	MinWindow = 4
	// MaxWindow is what a peer may offer (handshake.MaxWindow): counts are far from
	// wrapping into themselves.
	MaxWindow = 1 << 18

	// MaxMessage is the longest message: a content of 1 MiB, the largest eager limit
	// that can be set, and what is around it. Beyond it a write is better.
	MaxMessage = 1<<20 + 64<<10

	// MinSendQueue has room for the reserve and for some of each kind.
	MinSendQueue = 16
	// MaxSendQueue is what slots of a verbs.WRID can tell apart.
	MaxSendQueue = 1 << 20

	// creditReserve is how many credits are CREDIT's own, on rail 0. Without
	// any, two sides that each wait for credits have none to say so with.
	creditReserve = 2

	// sendReserve is how many places of a send queue are kept for CREDIT,
	// CANCEL, ACK and probes: one of each.
	sendReserve = 4

	// DefaultMaxWaiting is how many receives may wait for an answer: as for
	// every wire (transport.DefaultMaxWaiting). Beyond it ResourceExhausted.
	DefaultMaxWaiting = 1_000_000

	// DefaultMaxMetas is how many values' meta-data is remembered: more than
	// a model has large tensors, at about 300 bytes each.
	DefaultMaxMetas = 16_384

	// DefaultChunk is how much of a content is written at once. Each write has
	// a completion, which costs about a microsecond of ours; at 100 Gbit/s a
	// chunk takes 40 of them.
	DefaultChunk = 512 << 10
	// MinChunk is a page: smaller writes are all overhead.
	MinChunk = 4096
	// MaxChunk is the longest message that RDMA has, 2³¹ bytes, less one page
	// of ours.
	MaxChunk = 1<<31 - 4096

	// DefaultOutstanding is how much is under way on a rail at once. A small
	// message that is posted behind it waits for it: 0.3 ms at 100 Gbit/s. It
	// covers what the device writes while a completion waits to be polled.
	DefaultOutstanding = 4 << 20

	// stripeUnit is what a rail carries at least, and shares are multiples of
	// pageSize. Below it a second rail costs more messages than it saves time.
	// Both are in PROTOCOL.md section 8: the sides must agree.
	stripeUnit = 1 << 20
	pageSize   = 4096

	// DefaultQuarantineBytes is how much memory of cancelled receives may wait
	// for the peer's word. The shell gives a quarter of its receiving pool.
	DefaultQuarantineBytes = 1 << 30

	// quarantineTime is how long such memory waits before the channel is given
	// up for it (ARCHITECTURE.md section 4).
	quarantineTime = 10 * time.Second

	// helloTime is how long a channel waits for the peer's HELLO.
	helloTime = 10 * time.Second

	// probeAfter is how long nothing may come while something is outstanding
	// before a write without bytes asks the peer's device whether it is there.
	probeAfter = time.Second

	// queryAfter is how long a receive waits before the peer is asked whether
	// it knows of it; queryTime how long that question may stay unanswered.
	queryAfter = 30 * time.Second
	queryTime  = 10 * time.Second

	// stallTime is how long messages may wait for credits while the peer takes
	// none: it is stopped, or it has lost count. As long as a receive whose
	// request was posted waits at most.
	stallTime = queryAfter + queryTime

	// placeTime is how long a peer may take to say where a content goes: it holds the
	// content meanwhile. The longest that anything of a healthy peer waits.
	destTime = stallTime

	// repostPart is the part of a window that is posted again at once: a crossing into C
	// for each message would be in the way of its answer.
	repostPart = 8

	// finishDelay is how long finished ids that came with a request which cannot go
	// yet wait for it.
	ackDelay = 5 * time.Millisecond

	// tellDelay is how long counts that the peer asked for wait for a message
	// to ride on.
	countsDelay = 5 * time.Millisecond

	// byeTime is how long a BYE may take to be posted and to arrive.
	byeTime = time.Second
)
