package handshake

import "time"

// Versions of the protocol of PROTOCOL.md sections 8 and 9. Two sides use the lower of
// the versions that they offer.
const (
	// Version is the highest version that this process speaks.
	Version uint32 = 4
	// MinVersion is the lowest version. A peer below it is refused, and uses gRPC.
	MinVersion uint32 = 4
)

// Limits of an offer of the peer. An offer beyond them would cost memory here, or not
// work, and is refused.
const (
	// MaxRails bounds the queue pairs of one channel (PROTOCOL.md section 8).
	MaxRails = 8
	// MaxGeneration allows 2^31 breaks between two processes, and fits
	// RecvOptions.left_generation.
	MaxGeneration = 1 << 31
	// MaxStep is how far a generation may be above the last one. The peer is a few ahead
	// when its offers were lost. A jump to MaxGeneration would use all generations up.
	MaxStep = 1 << 16
	// MinWindow allows a message while the last two credits are reserved for CREDIT.
	MinWindow = 4
	// MaxWindow is above what queue pairs of present devices hold (32 Ki receives on
	// most).
	MaxWindow = 1 << 18
	// MinReceiveSize holds an error with the longest text (status.MaxMessage) and an
	// ordinary key.
	MinReceiveSize = 4096
	// MaxReceiveSize bounds a message. Larger content goes by RDMA write.
	MaxReceiveSize = 16 << 20
	// MaxUDPSources bounds the ports that a device in user space sends from.
	MaxUDPSources = 64
)

// Times.
const (
	// OfferLife is how long an offer may stay unconnected. Its queue pairs and posted
	// receives take memory.
	OfferLife = 30 * time.Second
	// HelloWait is how long the first message of a channel may take after the queue
	// pairs were connected: a round trip, and retransmissions of lost packets.
	HelloWait = 10 * time.Second
	// CallTimeout bounds one call, which may include making a gRPC connection.
	CallTimeout = 10 * time.Second
	// MinBackoff is the wait after the first failure. Further failures double it.
	MinBackoff = 500 * time.Millisecond
	// MaxBackoff is the longest wait: a peer that never has verbs costs two small calls
	// a minute. A peer that starts later calls at once. After an error that will not
	// change soon (FailedPrecondition, InvalidArgument, PermissionDenied,
	// Unauthenticated, Unimplemented) the first wait has this length already.
	// Config.Jitter adds up to a quarter to every wait.
	MaxBackoff = 30 * time.Second
	// Steady is how long a channel must have been up for its break to count as the first
	// one again.
	Steady = 30 * time.Second
	// CheckEvery is the least time between two calls that verify the peer's incarnation.
	// Any process that can reach the port can cause such calls. It is half a second because the first
	// call after a restart may fail, and receives are to learn of the restart within a second.
	CheckEvery = 500 * time.Millisecond
)

// maxDoublings of MinBackoff exceed MaxBackoff.
const maxDoublings = 8

// maxEarlier is for how many earlier processes of a peer a machine remembers the
// generation. Two processes may alternate while late calls of one arrive.
const maxEarlier = 4

// maxFloors is for how many processes of a peer a machine remembers what the other routes have
// reached: each of those may know another process, and this one, too.
const maxFloors = 4

// maxPending bounds the requests of one peer that wait for an offer to be made or
// connected. A peer that follows the protocol has one call under way.
const maxPending = 8

// Limits of an inventory (PROTOCOL.md section 9).
const (
	// MaxDevices allows several ports for each route.
	MaxDevices = 16
	// MaxReach bounds the GIDs or addresses of a device.
	MaxReach = 16
	// MaxDeviceText bounds each string of a device, in bytes: an address, or why a route failed.
	MaxDeviceText = 256
	// MaxFailedFor bounds FailedFor. Package route never waits longer than half of it.
	MaxFailedFor = 10 * time.Minute
)
