package roce

import (
	"math"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

const (
	// streamShare is the share of Throughput's model that programs reach: transfers
	// begin and end, and a loss at an end is found by a timer instead of a NAK. A
	// continuous stream on virtual time reaches the whole model, one between the sockets
	// of a host 0.85 of it, and a pull between two hosts reached a third.
	streamShare = 0.6
	// hostRate is what a processor moves at most, in bytes a second.
	hostRate = 2e9
)

// Throughput estimates the bytes a second that a peer receives by WRITEs over a path with
// that round trip and share of lost packets, 0 to 1. buffer is what the peer tells of its
// receive buffer, in bytes; 0 if it is not known. TestThroughput compares it with
// streams: it is right within a factor of two.
//
// A round trip carries as many packets as the window has. After a loss the window shrinks
// by b = 1/(2*equivalentFlows), and it grows by a = equivalentFlows packets a round trip.
// In the steady state of such a window there are sqrt(a*(2-b)/(2*b*p)) packets in it
// (Floyd, Handley and Padhye, "A comparison of equation-based and AIMD congestion
// control", 2000; with a = 1 and b = 1/2 it is the sqrt(3/(2*p)) of Mathis and others).
// The receiver drops everything behind a lost packet until it is sent again (go-back-N):
// each loss costs a window, so of N packets that are sent 1/(1+p*N) count.
func Throughput(mtu verbs.MTU, roundTrip time.Duration, loss float64, buffer uint64) float64 {
	const a, b = float64(equivalentFlows), 1.0 / (2 * equivalentFlows)
	w := newWindow(buffer, uint64(mtu))
	packets := float64(w.limit) / float64(windowCost(1, uint64(mtu)))
	if loss > 0 {
		packets = min(packets, math.Sqrt(a*(2-b)/(2*b*loss)))
	}
	packets /= 1 + loss*packets
	return min(hostRate, streamShare*packets*float64(mtu)/max(roundTrip, time.Microsecond).Seconds())
}
