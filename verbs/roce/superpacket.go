package roce

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// trust says whether super-packets reach the peer. Those of a roce device are; a
// kernel or a NIC may drop what comes with an identification that the ICRC does
// not have, so one of two segments is sent first, and seen whether it is
// acknowledged. What is never acknowledged, as an answer to a READ is, proves
// nothing; nor does what was sent before, as nobody knows which of the two arrived.
type superPacketProbe struct {
	state  probeState
	lost   int
	qp     *qp
	number uint64 // the probe is acknowledged when all packets below it are
}

type probeState uint8

const (
	probeNone probeState = iota
	probeSent
	probeSucceeded
	probeFailed
)

// trustTests is how many probes may be lost, as packets are, before super-packets
// are given up.
const maxLostProbes = 3

// segments is how many a message may have when a packet is added to it, of those
// that the socket can.
func (t *superPacketProbe) maxSegments(limit int, p *packet) int {
	switch {
	case t.state == probeSucceeded:
		return limit
	case t.state == probeNone && p.Op.Request() && !p.Retransmit:
		return min(limit, 2)
	}
	return 1
}

// sent notes that the last packet of a queue pair went as the second of a
// super-packet.
func (t *superPacketProbe) onSuperPacket(q *qp) {
	if t.state == probeNone {
		t.state, t.qp, t.number = probeSent, q, q.machine.req.next
	}
}

// learn looks whether the probe was acknowledged.
func (t *superPacketProbe) update(q *qp, n feedback) {
	if t.state != probeSent || t.qp != q {
		return
	}
	switch {
	case q.machine.state != verbs.StateRTS: // what it had sent is flushed, and not acknowledged
		t.cancel(q)
	case q.machine.req.acked >= t.number:
		t.state, t.qp = probeSucceeded, nil
	case n.lost || n.timeouts > 0:
		t.onLoss()
	}
}

// repeats is for a queue pair that sends something again: what comes of it says
// nothing of a probe before it.
func (t *superPacketProbe) onRetransmit(q *qp) {
	t.update(q, q.machine.feedback)
	t.cancel(q)
}

// forget ends a probe whose queue pair goes, or that nothing will be known of.
func (t *superPacketProbe) cancel(q *qp) {
	if t.state == probeSent && t.qp == q {
		t.state, t.qp = probeNone, nil
	}
}

func (t *superPacketProbe) onLoss() {
	t.state, t.qp = probeNone, nil
	if t.lost++; t.lost == maxLostProbes {
		t.state = probeFailed
	}
}
