package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
)

// queueAck queues an ACK or NAK, to be sent after the queued READ and atomic responses.
// It replaces a queued ACK or NAK, since the later one implies the earlier one.
func (m *machine) queueAck(s rocewire.Syndrome, number uint64) {
	r := &m.resp
	r.ack, r.ackNumber, r.ackPending, r.ackDelayed, r.ackFirst = s, number, true, false, false
}

// queueSequenceNAK asks for the missing packets. If the packet before them belonged to
// a SEND or WRITE, an ACK is sent first, although the NAK implies it: after a
// retransmission, rxe ignores further NAKs until it receives an ACK (started_retry of
// rxe_comp.c, Linux 6.1), and would wait for its timeout. READs and atomics are
// acknowledged by their responses.
func (m *machine) queueSequenceNAK() {
	r := &m.resp
	m.queueAck(rocewire.NAKSequence, r.expected)
	r.ackFirst = r.lastWasData
}

// delayAck delays the ACK of a short message, because the receiver usually replies with
// a request: if both packets travel together, they wake the peer once. The requester
// needs the ACK only to reuse a slot (specification, volume 1, 9.7.5.1.2: coalesced
// acknowledgements). If an ACK is delayed already, its deadline stays.
func (m *machine) delayAck(now time.Duration, alreadyDelayed bool) {
	r := &m.resp
	until := now + maxAckDelay
	if alreadyDelayed {
		until = r.ackDeadline
	}
	r.lastShort, r.shortsFrequent = now, now-r.lastShort <= piggybackTime
	if r.delayedAcks++; r.delayedAcks < maxDelayedAcks {
		r.ackDelayed, r.ackDeadline = true, until
	}
}

// mayDelayAck reports whether the ACK of a packet may be delayed: the packet is a whole
// message and consumes a receive, so the application learns of it and may reply.
func mayDelayAck(h *rocewire.Header) bool {
	return h.Op.StartsMessage() && h.Op.EndsMessage() && (h.Op.IsSend() || h.Op.HasImm())
}

// piggybackDue reports whether a delayed ACK should travel with a request of one
// packet, for which the ACK about doubles the cost on both sides. It should when it
// stands for several messages, or has waited for some time, or when messages are
// infrequent, since there may be no other request in time and the timer would then fire
// for each message.
func (r *responder) piggybackDue(now time.Duration) bool {
	return !r.shortsFrequent || r.delayedAcks >= piggybackMessages || now >= r.ackDeadline-maxAckDelay+piggybackTime
}

// onCongestionMark handles a packet with an ECN mark: the peer gets a CNP, at most one
// per cnpInterval.
func (m *machine) onCongestionMark(now time.Duration) {
	r := &m.resp
	if !r.cnpSent || now-r.lastCNP >= cnpInterval {
		r.cnpPending, r.cnpSent, r.lastCNP = true, true, now
	}
}
