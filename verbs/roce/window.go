package roce

import (
	"cmp"
	"time"
)

// window is how much may be under way between two sockets: the congestion control
// of QUIC, which is NewReno (RFC 9002, section 7 and appendix B), over what charge
// counts. All queue pairs between the two share it, so that it stands for several
// connections (standsFor).
type window struct {
	size      uint64
	capacity  uint64 // what the peer's receive buffer holds
	ssthresh  uint64 // ssthresh: below it the size grows by what is acknowledged
	limit     uint64 // of size: its part of that
	min       uint64
	reducedAt time.Duration
	reduced   bool          // cutAt is set
	rtt       time.Duration // that one of the queue pairs measured last; 0 for none
}

const (
	// startWindow is what is sent before anything was acknowledged.
	initialWindow = 128 << 10
	// maxWindow bounds it whatever the peer has: a core moves 3 GB/s at most, and a
	// round trip within a data centre takes 150 us, which is 450 kB. On the loopback
	// 1 MiB takes 0.46 ms with it, and 0.80 ms with 4 MiB, most of which only waits,
	// and is out of the processor's cache when its turn comes.
	maxWindow = 512 << 10
	// standsFor is how many NewReno connections a window is like: of so many, one loss
	// halves one, and in a round trip each grows by a packet (MulTCP: Crowcroft and
	// Oechslin, 1998). With 1% loss, which keeps windows small, 1 left 0.23 to 0.28 of
	// the rate of a clean network, 2 leaves 0.32, and 4 left 0.35
	// (TestNativeOnePercentLoss).
	equivalentFlows = 2
	// leastPackets is the minimum window (RFC 9002, 7.2).
	minWindowPackets = 2
)

// newWindow is the window toward a peer whose receive buffer holds so much; 0 for
// not known.
func newWindow(buffer, mtu uint64) window {
	least := minWindowPackets * windowCost(1, mtu)
	limit := uint64(maxWindow)
	if buffer != 0 {
		limit = max(min(buffer, maxWindow), least)
	}
	return window{size: min(initialWindow, limit), capacity: limit, ssthresh: limit, limit: limit, min: least}
}

// fit makes the minimum one of packets of that length: the queue pairs of a window may
// have several.
func (w *window) fitMTU(mtu uint64) {
	if least := minWindowPackets * windowCost(1, mtu); least > w.min {
		w.min, w.limit, w.size = least, max(w.limit, least), max(w.size, least)
	}
}

// share divides the peer's buffer among so many windows.
func (w *window) share(flows uint64) {
	limit := max(w.capacity/max(flows, 1), w.min)
	if limit == w.limit {
		return
	}
	w.limit = limit
	w.size, w.ssthresh = min(w.size, limit), max(w.ssthresh, limit)
}

// onAck takes what was acknowledged. limited says that more would have been sent,
// had the window been larger: else nothing is known of a larger one (RFC 9002,
// 7.8).
func (w *window) onAck(acked uint64, limited bool) {
	switch {
	case !limited || acked == 0:
		return
	case w.size < w.ssthresh:
		w.size += acked
	default:
		w.size += equivalentFlows * w.min / minWindowPackets * acked / w.size
	}
	w.size = min(w.size, w.limit)
}

// onCongestion makes the window smaller, once a round trip: packets were lost, or a
// switch said that its queue is long (RFC 9002, 7.3.2 and 7.1).
func (w *window) onCongestion(now, rtt time.Duration) {
	if w.reduced && now < w.reducedAt+rtt {
		return
	}
	w.reduced, w.reducedAt = true, now
	w.ssthresh = max(w.size-w.size/(2*equivalentFlows), w.min)
	w.size = w.ssthresh
}

// onSilence is for a retransmission timer that fired again: nothing gets through
// (persistent congestion: RFC 9002, 7.6.2).
func (w *window) onPersistentCongestion(now time.Duration) {
	w.reduced, w.reducedAt = true, now
	w.ssthresh = max(w.size/2, w.min)
	w.size = w.min
}

// take is what a queue pair has seen. A retransmission timer that fires once says
// nothing yet: its one packet asks what was lost (RFC 9002, 6.2). One loss may be seen
// by many queue pairs, also by those that have measured no round trip yet: what counts
// is the way that they share.
func (w *window) apply(now time.Duration, n feedback, limited bool) {
	w.onAck(n.acked, limited)
	if n.rtt != 0 {
		w.rtt = n.rtt
	}
	switch {
	case n.timeouts > 1:
		w.onPersistentCongestion(now)
	case n.lost, n.congested:
		w.onCongestion(now, cmp.Or(w.rtt, firstRTO))
	}
}
