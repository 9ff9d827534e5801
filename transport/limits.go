package transport

import "time"

// The numbers of this package, with their reasons. Those that an operator may
// change are defaults of KeptOptions and FailoverOptions.
const (
	// DefaultMaxWaiting is how many receives of one asker may wait for
	// their value. A record takes about 1.6 kB at the sender when its key is
	// of usual length, and over gRPC the call that waits beside it 20 kB
	// (waiting-kept and waiting-remote of tryst-bench). An asker beyond it has
	// a fault that more memory does not mend.
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

	// waitingInAll is how many times the limits of one asker all of them
	// together may reach, so that a peer that invents askers is bounded too.
	waitingInAll = 4

	// maxCalls is how many calls may wait for one receive. A Tryst asker has
	// one; others may repeat a call a few times.
	maxCalls = 64

	// keptOverhead is charged for each answer that is kept beside its
	// tensor: for its record and key, so that answers without content
	// (errors, dead values) are bounded too. It is more where the key, or the
	// text of the error, is so long that recordSize and it are more.
	keptOverhead = 512
	recordSize   = 256

	// maxAskers is how many processes that are in no cluster may be known here: 50 MB.
	// Those without a connection are forgotten after rememberFor, so it is more than
	// ever pull from a server at a time.
	maxAskers = 100_000

	// maxAskersOfSource is how many of them one source address may introduce: those
	// behind a gateway, or a test that starts ten processes a second.
	maxAskersOfSource = 10_000

	// MaxAskerName bounds the name of an asker in bytes: a task name, and what
	// maxAskers counts with.
	MaxAskerName = 1024

	// maxDisplaced is how many earlier processes of an asker's name are known as such
	// for as long as it is known itself.
	maxDisplaced = 16

	// sharesOfSource is how many shares of one asker all askers of a source address
	// may have together: as a host runs several processes.
	sharesOfSource = 2

	// verifyWait bounds the call that asks which process is at the address of a task. The
	// request that waits for it can be repeated.
	verifyWait = 2 * time.Second

	// rememberFor is how long an id that may have copies under way is
	// remembered after its end. A copy can wait as long as a host can be
	// paused while its connection lives; TCP keepalive ends that in
	// minutes.
	rememberFor = 10 * time.Minute

	// maxRemembered is how many ids are remembered for one asker, beside those of its
	// receives: 50 bytes each. As many as may wait, by default: all that wait can be
	// cancelled at once.
	maxRemembered = 1_000_000

	// minTick is the least time between two looks at what has to be given up
	// or forgotten, so that many due one after the other cost one look.
	minTick = time.Second

	// DefaultPeerTimeout is how long no wire may reach a peer before its
	// receives end with Unavailable: longer than a switch takes to reroute,
	// shorter than a person waits.
	DefaultPeerTimeout = 10 * time.Second

	// maxReasked is how many receives asked again are on one wire at once.
	// After a break thousands may wait; answered all at once they would
	// need the memory of all at once.
	maxReasked = 64

	// reaskPause is how long none of those may be answered before twice as
	// many are asked: they wait for values then that are not there yet, and
	// may come only after those that are not asked. Longer than the round
	// trip to a peer that is far away.
	reaskPause = 100 * time.Millisecond

	// finishDelay is how long a finished id waits for a request to ride on
	// before it is said alone.
	finishDelay = 5 * time.Millisecond

	// finishSoon is how long it waits when the peer keeps DefaultMuchKept bytes
	// for it: as long as a program takes that has one value and asks for the next.
	finishSoon = 200 * time.Microsecond

	// DefaultMuchKept is how many bytes kept for finished ids make them worth a
	// message of their own, which costs a call: memory is then dearer than that.
	DefaultMuchKept = 64 << 20

	// maxRiders bounds the finished ids on one request: 8 bytes each, so
	// that the header of a small request stays within one packet.
	maxRiders = 128

	// maxCancelRiders is how many cancelled ids go with a request, likewise. Where the peer
	// has not confirmed more, requests wait until it has.
	maxCancelRiders = 128

	// maxFree is how many records of receives and of actions are kept for use
	// again, of one peer (100 bytes each): as many as come and go at once.
	maxFree = 256

	// maxIdleWorkers is how many goroutines are kept for the next attempts: their stacks are
	// 8 KiB or 16 KiB each.
	maxIdleWorkers = 32

	// maxSaid is how many ids are said at once: 8 bytes each, well within the
	// 4 MiB that a gRPC message has at most.
	maxSaid = 100_000

	// closeCall is how long Close waits to reach a peer that was lost, to say what was
	// cancelled: a connection takes less to one that is there, and who ends because of one
	// that is not shall not have to wait.
	closeCall = 300 * time.Millisecond

	// maxSameLosses is how often in a row a request may be lost with the same code, unless
	// that is of a connection that breaks: a proxy that restarts gives an error or two.
	maxSameLosses = 3

	// helloPause is the pause between two attempts to reach a peer. It
	// doubles up to helloPauseMax: soon back after a restart, no storm at a
	// peer that is gone.
	helloPause    = 20 * time.Millisecond
	helloPauseMax = time.Second
)
