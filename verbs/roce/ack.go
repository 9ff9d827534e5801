package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// owe lets a reply go out, behind the answers to reads. The last one stands: it
// says all that those before it said.
func (m *machine) queueAck(s wire.Syndrome, number uint64) {
	r := &m.resp
	r.ack, r.ackNumber, r.ackPending, r.ackDelayed, r.ackFirst = s, number, true, false, false
}

// oweGap asks for what is missing. The send or write before it is acknowledged in a
// packet of its own, though the NAK says as much: a kernel that repeats something hears
// no further NAK until it has an ACK (started_retry of rxe_comp.c, Linux 6.1), and would
// wait until its time is up. Reads and atomics are acknowledged by their answers.
func (m *machine) queueSequenceNAK() {
	r := &m.resp
	m.queueAck(wire.NAKSequence, r.expected)
	r.ackFirst = r.lastWasData
}

// hold lets the acknowledgement of a short message wait where its receiver, as a
// rule, answers it: the two packets wake the peer once. A requester waits for it
// only to use a slot again (specification, volume 1, 9.7.5.1.2: coalesced
// acknowledgements). What waited already, waits no longer for it.
func (m *machine) delayAck(now time.Duration, since bool) {
	r := &m.resp
	until := now + maxAckDelay
	if since {
		until = r.ackDeadline
	}
	r.lastShort, r.shortsFrequent = now, now-r.lastShort <= piggybackTime
	if r.delayedAcks++; r.delayedAcks < maxDelayedAcks {
		r.ackDelayed, r.ackDeadline = true, until
	}
}

// mayBeHeld says whether the acknowledgement of a packet may be held: it is a message,
// and takes a receive, so that somebody hears of it who may answer.
func mayDelayAck(h *wire.Header) bool {
	return h.Op.StartsMessage() && h.Op.EndsMessage() && (h.Op.IsSend() || h.Op.HasImm())
}

// ripe says whether an acknowledgement that is held goes along with a request of one
// packet: it costs both sides about as much as that. It is for some messages, or has
// waited for a while, or messages are far apart: there may be no other request in time,
// and a timer would wake a thread for each.
func (r *responder) piggybackDue(now time.Duration) bool {
	return !r.shortsFrequent || r.delayedAcks >= piggybackMessages || now >= r.ackDeadline-maxAckDelay+piggybackTime
}

// sawCongestion notes a packet that a switch had marked (ECN): the peer is told,
// now and then.
func (m *machine) onCongestionMark(now time.Duration) {
	r := &m.resp
	if !r.cnpSent || now-r.lastCNP >= cnpInterval {
		r.cnpPending, r.cnpSent, r.lastCNP = true, true, now
	}
}
