package roce

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// superPacketProbe finds out whether super-packets reach the peer. They do reach
// devices of this package. Kernels and NICs may drop packets whose IPv4 identification
// is not the one that the ICRC covers, so the flow first sends one super-packet of two
// segments, and checks whether it is acknowledged. READ responses cannot be probes,
// since they are not acknowledged; retransmitted packets neither, since it is unknown
// which copy arrived.
type superPacketProbe struct {
	state  probeState
	lost   int
	qp     *qp
	number uint64 // the probe has arrived when all packets below are acknowledged
}

type probeState uint8

const (
	probeNone probeState = iota
	probeSent
	probeSucceeded
	probeFailed
)

// maxLostProbes is the number of lost probes after which no super-packets are sent. A
// single probe may be lost as any packet.
const maxLostProbes = 3

// maxSegments returns how many segments a message may have with p. limit is the maximum
// of the socket.
func (s *superPacketProbe) maxSegments(limit int, p *packet) int {
	switch {
	case s.state == probeSucceeded:
		return limit
	case s.state == probeNone && p.Op.Request() && !p.Retransmit:
		return min(limit, 2)
	}
	return 1
}

// onSuperPacket records that the last packet of q was sent as the second segment of a
// super-packet.
func (s *superPacketProbe) onSuperPacket(q *qp) {
	if s.state == probeNone {
		s.state, s.qp, s.number = probeSent, q, q.machine.req.next
	}
}

// update checks whether the probe was acknowledged or lost.
func (s *superPacketProbe) update(q *qp, n feedback) {
	if s.state != probeSent || s.qp != q {
		return
	}
	switch {
	case q.machine.state != verbs.StateRTS: // its packets were flushed, not acknowledged
		s.cancel(q)
	case q.machine.req.acked >= s.number:
		s.state, s.qp = probeSucceeded, nil
	case n.lost || n.timeouts > 0:
		s.onLoss()
	}
}

// onRetransmit is called when q sends a packet again: an acknowledgement then proves
// nothing about an earlier probe.
func (s *superPacketProbe) onRetransmit(q *qp) {
	s.update(q, q.machine.feedback)
	s.cancel(q)
}

// cancel ends the probe of a queue pair, without a result.
func (s *superPacketProbe) cancel(q *qp) {
	if s.state == probeSent && s.qp == q {
		s.state, s.qp = probeNone, nil
	}
}

func (s *superPacketProbe) onLoss() {
	s.state, s.qp = probeNone, nil
	if s.lost++; s.lost == maxLostProbes {
		s.state = probeFailed
	}
}
