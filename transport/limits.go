package transport

import "time"

// The numbers of this package, with their reasons. Those that an operator may
// change are defaults of KeptOptions and FailoverOptions.
const (
	// DefaultMaxWaiting is how many receives of one asker may wait for
	// their value: about 300 MB of records at the sender when the keys are
	// of usual length. An asker beyond it has a fault that more memory does
	// not mend.
	DefaultMaxWaiting = 1_000_000

	// DefaultMaxWaitingBytes bounds the keys of those receives, which the
	// asker chooses the length of.
	DefaultMaxWaitingBytes = 256 << 20

	// DefaultKeptPerAsker is how many bytes of answers are kept for one
	// asker that has not said that it finished with them.
	DefaultKeptPerAsker = 1 << 30

	// giveUpAfter is how long an answer outlives the last wire to its
	// asker. A host that restarts its network is back within it, and
	// nothing is pinned for ever for one that is not.
	giveUpAfter = 60 * time.Second

	// rememberFor is how long an id that may have copies under way is
	// remembered after its end. A copy can wait as long as a host can be
	// paused while its connection lives; TCP keepalive ends that in
	// minutes.
	rememberFor = 10 * time.Minute

	// maxRemembered bounds what one asker makes the sender remember: at 16
	// bytes an id this is 16 MB. Beyond it the oldest are forgotten.
	maxRemembered = 1_000_000

	// DefaultPeerTimeout is how long no wire may reach a peer before its
	// receives end with Unavailable: longer than a switch takes to reroute,
	// shorter than a person waits.
	DefaultPeerTimeout = 10 * time.Second

	// maxReasked is how many receives asked again are on one wire at once.
	// After a break thousands may wait; answered all at once they would
	// need the memory of all at once.
	maxReasked = 64

	// finishDelay is how long a finished id waits for a request to ride on
	// before it is said alone.
	finishDelay = 5 * time.Millisecond

	// finishAtOnce is how many finished bytes make the id worth a message
	// of its own: the peer's memory is then more dear than a round trip.
	finishAtOnce = 64 << 20

	// maxRiders bounds the finished ids on one request: 8 bytes each, so
	// that the header of a small request stays within one packet.
	maxRiders = 128

	// helloPause is the pause between two attempts to reach a peer. It
	// doubles up to helloPauseMax: soon back after a restart, no storm at a
	// peer that is gone.
	helloPause    = 20 * time.Millisecond
	helloPauseMax = time.Second
)
