package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// Limits of the device. They are those of a NIC, since memory is allocated on use.
const (
	maxQPs     = 1 << 16
	maxCQs     = 1 << 16
	maxMRs     = 1 << 24
	maxPDs     = 1 << 16
	maxWR      = 1 << 15
	maxSGEs    = 30 // as in rxe
	maxCQE     = 1 << 20
	maxMRSize  = 1 << 48
	maxInline  = 1024
	maxMessage = 1 << 31 // specification, volume 1, 9.7.6: RC messages
	// maxReadAtomic limits the READs and atomics that are outstanding on a queue pair,
	// in each direction. Each takes a slot in the requester or responder.
	maxReadAtomic = 16
)

func limits() verbs.Limits {
	return verbs.Limits{
		QPs: maxQPs, CQs: maxCQs, MRs: maxMRs, PDs: maxPDs, SendWR: maxWR, RecvWR: maxWR, SGEs: maxSGEs, CQEntries: maxCQE,
		MRSize: maxMRSize, ReadAtomic: maxReadAtomic, Atomics: true,
	}
}

const (
	// maxFlight limits the unacknowledged packets of a queue pair, far below the 2^23
	// that PSNs can distinguish.
	maxFlight = 1 << 16
	// ackPackets is the number of packets of a long message for each of which an ACK is
	// requested; about as many as a super-packet has.
	ackPackets = 16
	// readPackets is the number of packets that one READ request asks for. Longer READs
	// are requested in parts, so that their responses fit into the receive buffer.
	readPackets = 16
	// readInterval is the time in which a flow sends one window of READ responses that
	// were not requested in parts: the round trip that maxWindow assumes. A timer that
	// is late makes it a millisecond, which limits such READs to 512 MB/s.
	readInterval = 150 * time.Microsecond
	// flushShare is the fraction of a window after which an endpoint sends
	// acknowledgements while more packets wait to be received. An ACK for each
	// super-packet would cost much of the receiver's time; with too few ACKs the peer's
	// window is full and the peer stops, above all where it has Linux's default receive
	// buffer.
	flushShare = 4
	// overhead is what a packet counts in the congestion window besides its payload:
	// the headers, and the kernel's own memory for a packet in a receive buffer.
	overhead = udp.MinCost
	// maxAckDelay is how long the ACK of a short message waits for a packet to travel
	// with. It is longer than an application takes to reply, and shorter than any
	// retransmission timeout. With a much shorter delay the timer would fire, and wake
	// a thread, for many messages. If there is no reply, only one ACK is delayed
	// (responder.sendsRequests).
	maxAckDelay = time.Millisecond
	// maxDelayedAcks is the number of short messages that one delayed ACK acknowledges.
	maxDelayedAcks = 16
	// A delayed ACK travels with the next request after that many short messages, or
	// that time. An ACK with each request would make short exchanges slower.
	piggybackMessages = maxDelayedAcks / 2
	piggybackTime     = maxAckDelay / 2
	// cnpInterval is the minimum time between two congestion notifications of a queue
	// pair. 50 us is the default of Intel's NICs (NVIDIA's min_time_between_cnps is 4
	// us).
	cnpInterval = 50 * time.Microsecond
)

// rnrInfinite is the RNR retry count that means no limit (specification, volume 1,
// 9.7.5.2.8). A retry count (not RNR) of 7 means seven.
const rnrInfinite = 7

// The retransmission timeout (RFC 9002, 6.2.1): the round trip, its variation, and
// maxAckDelay if the peer may delay the ACK. retransmitTimer.rto limits it. maxAckDelay is
// not added for other packets: on a lossy network, where an ACK is lost and no other
// follows, the timeout decides the throughput.
const (
	// firstRTO is used before the first round trip is measured. It is short, since most paths
	// are: on a longer path some packets are sent twice, until the timeout that is kept
	// (retransmitTimer.kept) is long enough for a sample.
	firstRTO = 50 * time.Millisecond
	// maxUnsampled is the number of timeouts in a row, each followed by a response but without a
	// sample of the round trip between them, after which the round trip counts as longer than
	// the timeout. Losses rarely cause that.
	maxUnsampled = 3
	// maxKept limits the timeout that is kept, so that heavy loss alone leaves enough attempts
	// before the queue pair fails. It is the first timeout of RFC 6298 (2.1); no path between
	// RDMA devices has a longer round trip.
	maxKept = time.Second
	// granularity is the minimum variation of the round trip (kGranularity of RFC
	// 9002). Go's timers have this resolution in a process that waits for sockets.
	// Where a busy host takes longer to respond, the measured round trip grows; a
	// timeout that comes too early costs one packet.
	granularity = time.Millisecond
)

const (
	// onlyPort is the number of a device's only port.
	onlyPort = soft.OnlyPort
	// gidTableSize limits the addresses of an interface that can be used.
	gidTableSize = 128
	// frameOverhead is what the headers of a packet take from an interface's MTU, in
	// bytes.
	frameOverhead = 80
	// warnInterval is the minimum time between two warnings of a flow that it cannot
	// send.
	warnInterval = time.Minute
	// failuresWarned is after how many failures to receive in a row there is a warning: with the
	// pauses between them after half a second.
	failuresWarned = 9
	// defaultSenders is the default of Options.Senders.
	defaultSenders = 4
)

// never is a duration for a timer that is created before it is needed.
const never = time.Duration(1<<63 - 1)
