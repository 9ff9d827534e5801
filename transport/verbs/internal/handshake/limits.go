package handshake

import "time"

// The versions of the protocol that PROTOCOL.md sections 8 and 9 describe. Two sides
// use the lower of the versions that they offer.
const (
	// Version is the highest version that this process speaks.
	Version uint32 = 4
	// MinVersion is the lowest: a peer below it is refused, and uses gRPC.
	MinVersion uint32 = 4
)

// What a peer may say of itself. Beyond that its offer is refused: it would cost
// memory here, or not work.
const (
	// MaxRails bounds the queue pairs of one channel (PROTOCOL.md section 8).
	MaxRails = 8
	// MaxGeneration leaves 2^31 breaks between two processes, and fits
	// RecvOptions.left_generation.
	MaxGeneration = 1 << 31
	// MaxStep is how far a generation may be above the last one. A peer whose offers we
	// did not get has a few more; a jump to MaxGeneration would use all numbers up.
	MaxStep = 1 << 16
	// MinWindow lets a message go while the last two credits are kept for CREDIT.
	MinWindow = 4
	// MaxWindow is as many receives as a queue pair of today's devices has (32 Ki
	// on most), with room.
	MaxWindow = 1 << 18
	// MinReceiveSize holds an error with a full text (status.MaxMessage) and any
	// ordinary key.
	MinReceiveSize = 4096
	// MaxReceiveSize: what is larger goes by RDMA write.
	MaxReceiveSize = 16 << 20
	// MaxUDPSources bounds the list of ports that a device in user space sends from.
	MaxUDPSources = 64
)

// How long things take.
const (
	// OfferLife is for an offer that is not paired: its queue pairs and posted
	// receives are memory.
	OfferLife = 30 * time.Second
	// HelloWait is for the first message on a channel, from the pairing on: a
	// round trip, with what a lost packet costs.
	HelloWait = 10 * time.Second
	// CallTimeout is for one call: a connection is made in it.
	CallTimeout = 10 * time.Second
	// MinBackoff is the wait after the first failure; it doubles.
	MinBackoff = 500 * time.Millisecond
	// MaxBackoff is where it ends: the price of a peer that never has verbs is two
	// small calls a minute. Who comes up later calls by itself, at once. After a
	// refusal that will be said again (FailedPrecondition, InvalidArgument,
	// PermissionDenied, Unauthenticated, Unimplemented) it is the first wait
	// already. Config.Jitter adds up to a quarter to every wait, this one too.
	MaxBackoff = 30 * time.Second
	// Steady is how long a channel must have been up for its next break to count as
	// the first.
	Steady = 30 * time.Second
	// CheckEvery is between two calls that find out whether a peer is the process
	// that another request says; whoever can reach the port can cause them.
	CheckEvery = time.Second
)

// maxEarlier is how many earlier processes of a peer a machine knows the generations of: two
// may take turns while the late calls of one arrive.
const maxEarlier = 4

// maxPending bounds the requests of one peer that wait for an offer to be made or
// connected. A peer has one call under way.
const maxPending = 8
