package roce

import (
	"cmp"
	"time"
)

// window limits the bytes in flight between two sockets, in units of windowCost. It is
// the congestion control of QUIC, which is NewReno (RFC 9002, section 7 and appendix
// B). All queue pairs between the two sockets share it, so it competes like several
// connections (equivalentFlows).
type window struct {
	size      uint64
	capacity  uint64 // of the peer's receive buffer
	ssthresh  uint64 // slow start threshold: below it, size grows by what is acknowledged
	limit     uint64 // the largest size: this window's share of capacity
	min       uint64
	reducedAt time.Duration
	reduced   bool          // reducedAt is set
	least     time.Duration // shortest round trip of all of them; 0 for none
	saved     savedWindow   // before a reduction that may be undone
	rtt       time.Duration // last round trip measured by one of the queue pairs; 0 for none
}

// savedWindow is a window before a loss that is doubtful: the timer fired before a round
// trip was measured. If the round trip proves to be that long, the reduction is undone (RFC
// 4015, section 3). The zero value is none.
type savedWindow struct{ size, ssthresh uint64 }

const (
	// initialWindow is the size before the first acknowledgement.
	initialWindow = 128 << 10
	// maxWindow limits the window whatever the peer's buffer is. It covers the
	// bandwidth-delay product of a data centre: 3 GB/s, which a core can move, times a
	// round trip of 150 us is 450 kB. A larger window only fills queues, and what waits
	// in them leaves the processor's cache.
	maxWindow = 512 << 10
	// equivalentFlows is the number of NewReno connections that a window competes like:
	// a loss halves one of them, and in a round trip each grows by a packet (MulTCP:
	// Crowcroft and Oechslin, 1998). More connections keep more throughput on a lossy
	// network, and take more from others (TestNativeOnePercentLoss measures it).
	equivalentFlows = 2
	// minWindowPackets is the minimum window (RFC 9002, 7.2).
	minWindowPackets = 2
)

// newWindow returns the window toward a peer with a receive buffer of that many bytes;
// 0 if unknown.
func newWindow(buffer, mtu uint64) window {
	least := minWindowPackets * windowCost(1, mtu)
	limit := uint64(maxWindow)
	if buffer != 0 {
		limit = max(min(buffer, maxWindow), least)
	}
	return window{size: min(initialWindow, limit), capacity: limit, ssthresh: limit, limit: limit, min: least}
}

// fitMTU raises the minimum window to that of packets of the given MTU: queue pairs
// with different MTUs share the window.
func (w *window) fitMTU(mtu uint64) {
	if least := minWindowPackets * windowCost(1, mtu); least > w.min {
		w.min, w.limit, w.size = least, max(w.limit, least), max(w.size, least)
	}
}

// share divides the peer's buffer among a number of windows.
func (w *window) share(flows uint64) {
	limit := max(w.capacity/max(flows, 1), w.min)
	if limit == w.limit {
		return
	}
	w.limit = limit
	w.size, w.ssthresh = min(w.size, limit), max(w.ssthresh, limit)
}

// onAck grows the window by what was acknowledged. limited is set if the window was too
// small for what there was to send; otherwise a larger window is untested (RFC 9002,
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

// onCongestion reduces the window after a loss or a congestion mark, at most once a
// round trip (RFC 9002, 7.3.2 and 7.1).
func (w *window) onCongestion(now, rtt time.Duration) {
	if w.reduced && now < w.reducedAt+rtt {
		return
	}
	w.reduced, w.reducedAt = true, now
	w.ssthresh = max(w.size-w.size/(2*equivalentFlows), w.min)
	w.size = w.ssthresh
}

// onPersistentCongestion handles a retransmission timer that fired again: nothing gets
// through (RFC 9002, 7.6.2).
func (w *window) onPersistentCongestion(now time.Duration) {
	w.reduced, w.reducedAt = true, now
	w.ssthresh = max(w.size/2, w.min)
	w.size = w.min
}

// apply processes the feedback of a queue pair. The first timeout does not reduce the
// window: the probe that follows shows whether packets were lost (RFC 9002, 6.2).
// Several queue pairs may report one loss, also ones without a round trip measured, so
// the round trip of the shared path decides whether it is a new one.
func (w *window) apply(now time.Duration, n feedback, limited bool) {
	w.onAck(n.acked, limited)
	if n.rtt != 0 {
		w.rtt = n.rtt
	}
	if n.least != 0 && (w.least == 0 || n.least < w.least) {
		w.least = n.least
	}
	if n.spurious {
		w.size, w.ssthresh = min(max(w.size, w.saved.size), w.limit), max(w.ssthresh, w.saved.ssthresh)
	}
	if reduces := n.timeouts > 1 || n.lost || n.congested; n.spurious || reduces && (!n.doubtful || n.congested) {
		w.saved = savedWindow{}
	} else if reduces && w.saved.size == 0 {
		w.saved = savedWindow{w.size, w.ssthresh}
	}
	switch {
	case n.timeouts > 1:
		w.onPersistentCongestion(now)
	case n.lost, n.congested:
		w.onCongestion(now, cmp.Or(w.rtt, firstRTO))
	}
}
