package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
)

// Limits of the device. What costs memory grows with use, so that they are those
// of a NIC.
const (
	maxQPs     = 1 << 16
	maxCQs     = 1 << 16
	maxMRs     = 1 << 24
	maxPDs     = 1 << 16
	maxWR      = 1 << 15
	maxSGEs    = 30 // as rxe
	maxCQE     = 1 << 20
	maxMRSize  = 1 << 48
	maxInline  = 1024
	maxMessage = 1 << 31 // specification, volume 1, 9.7.6: RC messages
	// maxReadAtomic is how many reads and atomics may be under way on a queue
	// pair, each way: each needs a place to remember it by.
	maxReadAtomic = 16
)

func limits() verbs.Limits {
	return verbs.Limits{
		QPs: maxQPs, CQs: maxCQs, MRs: maxMRs, PDs: maxPDs, SendWR: maxWR, RecvWR: maxWR, SGEs: maxSGEs, CQEntries: maxCQE,
		MRSize: maxMRSize, ReadAtomic: maxReadAtomic, Atomics: true,
	}
}

const (
	// ringStart is how many slots the ring of a queue has at first.
	minRing = 16
	// maxFlight is how many packets of a queue pair may be unacknowledged: far
	// below the 2^23 that PSNs can tell apart.
	maxFlight = 1 << 16
	// ackEvery is after how many packets of a long message an acknowledgement is
	// asked for; a super-packet has about as many.
	ackPackets = 16
	// readPackets is how many packets one READ request asks for: larger reads are
	// asked for piece by piece, so that what comes finds room in the receive
	// buffer.
	readPackets = 16
	// answersEvery is in what time a flow sends a window of answers that were not asked
	// for in pieces: the round trip that maxWindow is reckoned with. A timer that comes
	// late makes it a millisecond, and 512 MB/s.
	readInterval = 150 * time.Microsecond
	// settleShare is after what part of a window those who took packets answer, while
	// more packets wait to be taken: with an acknowledgement for each super-packet
	// these took 28% of the receiver's time. A quarter is far from stopping the peer.
	// Of the largest window, half and an eighth made no difference; of the 260 KiB that
	// Linux's default buffer holds, half took 10 to 15% of the throughput.
	flushShare = 4
	// overhead is what a packet counts beside its payload in the congestion
	// window: headers, and what the kernel adds to each packet in a receive
	// buffer.
	overhead = udp.LeastCost
	// holdTime is how long the acknowledgement of a short message waits for a packet
	// to travel with: longer than a process takes to answer, and below any
	// retransmission timeout. With a tenth of it a timer would run out for each of
	// many messages, and wake a thread in vain: one that is set looks for the next,
	// too. Where nothing travels back, it is waited once.
	maxAckDelay = time.Millisecond
	// holdMessages is how many short messages one acknowledgement is held for.
	maxDelayedAcks = 16
	// After so many short messages, or so long, a held acknowledgement travels with the
	// next request. With each of them, 8 bytes there and back took 5 to 9% longer; with
	// 4 it was no different.
	piggybackMessages = maxDelayedAcks / 2
	piggybackTime     = maxAckDelay / 2
	// cnpEvery is the least time between two congestion notifications for a queue
	// pair: 50 us, as NICs have it (NVIDIA's min_time_between_cnps is 4 us, Intel's
	// 50 us).
	cnpInterval = 50 * time.Microsecond
)

// rnrForEver is the RNR retry count that never ends (specification, volume 1,
// 9.7.5.2.8). A retry count of 7 is seven, here.
const rnrInfinite = 7

// The retransmission timer (RFC 9002, 6.2.1), below the timeout of the queue pair: a
// round trip, what it varies by, and holdTime, where the peer may take that. With 1%
// loss timers are half of the time, as nothing tells of an acknowledgement that is lost
// when no other is under way; with holdTime for all 0.18 was left of the rate of a clean
// network in place of 0.26 (TestNativeOnePercentLoss).
const (
	// firstRTO is used until a round trip was measured.
	firstRTO = 50 * time.Millisecond
	// granularity is the least that round trips are taken to vary by
	// (kGranularity). Go's timers are no finer where a process waits for sockets: with
	// half of it nothing was faster. A machine that is so busy that answers take longer
	// has them measured, and the timeout grows; one that comes too early costs a packet.
	granularity = time.Millisecond
)

const (
	// onlyPort is the number of a device's port.
	onlyPort = 1
	// gidTableSize is how many addresses of an interface can be used.
	gidTableSize = 128
	// frameOverhead is what the headers of a packet take of an interface's MTU.
	frameOverhead = 80
	// toldEvery is in what time a flow says at most once that it cannot send: as often
	// as a person may look.
	warnInterval = time.Minute
	// maxEvents is how many asynchronous events wait to be asked for.
	maxEvents = 256
	// defaultSenders is Options.Senders.
	defaultSenders = 4
)

// never is a time that no timer reaches: one is made with it and set later.
const never = time.Duration(1<<63 - 1)
