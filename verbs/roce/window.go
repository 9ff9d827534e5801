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
	size  uint64
	whole uint64 // what the peer's receive buffer holds
	slow  uint64 // ssthresh: below it the size grows by what is acknowledged
	limit uint64 // of size: its part of that
	least uint64
	cutAt time.Duration
	cut   bool          // cutAt is set
	rtt   time.Duration // that one of the queue pairs measured last; 0 for none
}

const (
	// startWindow is what is sent before anything was acknowledged.
	startWindow = 128 << 10
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
	standsFor = 2
	// leastPackets is the minimum window (RFC 9002, 7.2).
	leastPackets = 2
)

// newWindow is the window toward a peer whose receive buffer holds so much; 0 for
// not known.
func newWindow(buffer, mtu uint64) window {
	least := leastPackets * charge(1, mtu)
	limit := uint64(maxWindow)
	if buffer != 0 {
		limit = max(min(buffer, maxWindow), least)
	}
	return window{size: min(startWindow, limit), whole: limit, slow: limit, limit: limit, least: least}
}

// fit makes the minimum one of packets of that length: the queue pairs of a window may
// have several.
func (w *window) fit(mtu uint64) {
	if least := leastPackets * charge(1, mtu); least > w.least {
		w.least, w.limit, w.size = least, max(w.limit, least), max(w.size, least)
	}
}

// share divides the peer's buffer among so many windows.
func (w *window) share(among uint64) {
	limit := max(w.whole/max(among, 1), w.least)
	if limit == w.limit {
		return
	}
	w.limit = limit
	w.size, w.slow = min(w.size, limit), max(w.slow, limit)
}

// onAck takes what was acknowledged. limited says that more would have been sent,
// had the window been larger: else nothing is known of a larger one (RFC 9002,
// 7.8).
func (w *window) onAck(acked uint64, limited bool) {
	switch {
	case !limited || acked == 0:
		return
	case w.size < w.slow:
		w.size += acked
	default:
		w.size += standsFor * w.least / leastPackets * acked / w.size
	}
	w.size = min(w.size, w.limit)
}

// onCongestion makes the window smaller, once a round trip: packets were lost, or a
// switch said that its queue is long (RFC 9002, 7.3.2 and 7.1).
func (w *window) onCongestion(now, rtt time.Duration) {
	if w.cut && now < w.cutAt+rtt {
		return
	}
	w.cut, w.cutAt = true, now
	w.slow = max(w.size-w.size/(2*standsFor), w.least)
	w.size = w.slow
}

// onSilence is for a retransmission timer that fired again: nothing gets through
// (persistent congestion: RFC 9002, 7.6.2).
func (w *window) onSilence(now time.Duration) {
	w.cut, w.cutAt = true, now
	w.slow = max(w.size/2, w.least)
	w.size = w.least
}

// take is what a queue pair has seen. A retransmission timer that fires once says
// nothing yet: its one packet asks what was lost (RFC 9002, 6.2). One loss may be seen
// by many queue pairs, also by those that have measured no round trip yet: what counts
// is the way that they share.
func (w *window) take(now time.Duration, n note, limited bool) {
	w.onAck(n.acked, limited)
	if n.rtt != 0 {
		w.rtt = n.rtt
	}
	switch {
	case n.timeouts > 1:
		w.onSilence(now)
	case n.lost, n.congested:
		w.onCongestion(now, cmp.Or(w.rtt, firstRTO))
	}
}

// answers bounds what is sent of the answers to READs, which nobody acknowledges, so
// that it is not known what of them is under way: a window that is full, and no more
// before some time has passed, in which others have the flow and the station receives.
// Who asks for pieces that fit into a super-packet, as roce devices do, has them as
// fast as it asks: its own window bounds what it has asked for and not got.
type answers struct {
	whole int64         // what the peer's receive buffer holds
	left  int64         // may be sent
	last  time.Duration // when it was a whole window again
}

func newAnswers(buffer, mtu uint64) answers {
	n := int64(newWindow(buffer, mtu).whole) //nolint:gosec // at most maxWindow
	return answers{whole: n, left: n}
}

// take is called before turns, with what pieces were asked for meanwhile, and how
// many flows share the buffer.
func (a *answers) take(now time.Duration, among int64, asked uint64) {
	if now >= a.last+answersEvery {
		a.last, a.left = now, max(a.left, a.whole/max(among, 1))
	}
	a.left = min(a.left+int64(asked), a.whole) //nolint:gosec // answers that are remembered, of pieces
}
