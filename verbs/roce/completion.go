package roce

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// answered is a packet of the peer's responder.
func (m *machine) handleResponse(now time.Duration, h *wire.Header, payload []byte) {
	r := &m.req
	number, ok := numberOf(r.first, h.PSN, r.acked)
	if !ok || number >= r.highest { // of what was not sent (9.7.5.1.1: ghost acknowledgements)
		return
	}
	before := r.acked
	progress := func() {
		if r.acked != before {
			before = r.acked
			if r.backoff > 0 && r.acked < r.highest {
				m.feedback.lost = true // the packet that asked was not the only one that was missing
			}
			r.rnrRetries = 0
			r.onProgress(now, r.acked, r.acked < r.highest)
		}
	}
	defer progress()
	switch {
	case h.Op == wire.Ack && h.Syndrome.IsAck():
		m.acknowledge(number + 1)
		return
	case m.acknowledge(number) || r.acked != number || r.completed == r.posted:
		return
	case h.Op == wire.Ack:
		progress() // what a refusal says of those before it comes before it
		m.handleNAK(now, h.Syndrome)
		return
	}
	w := r.sends.at(r.completed)
	switch {
	case h.Op.IsReadResponse() && w.wr.Op == verbs.OpRead:
		m.handleReadResponse(w, payload)
	case h.Op == wire.AtomicAck && w.wr.Op >= verbs.OpCompareSwap:
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], h.Orig)
		m.storeResponse(w, 0, b[:])
	}
}

// acknowledge takes all packets below a number as done. What was asked for is
// done only when it was answered: an answer that is missing is asked for again
// (specification, volume 1, 9.7.5.1.2), and true returned.
func (m *machine) acknowledge(number uint64) (missing bool) {
	r := &m.req
	for r.acked < number && r.completed < r.posted {
		w := r.sends.at(r.completed)
		if w.isReadOrAtomic() {
			if again := r.acked + 1; r.repeatedAt != again {
				r.repeatedAt = again
				m.feedback.lost = true
				m.goBack()
			}
			return true
		}
		m.advance(w, min(number, w.end()))
	}
	return false
}

// advance takes the packets of the oldest work request below a number as done.
func (m *machine) advance(w *sendWork, number uint64) {
	r := &m.req
	m.feedback.acked += m.costOf(w, r.acked, number)
	if r.next > r.acked {
		r.flight -= m.costOf(w, r.acked, min(number, r.next))
	}
	r.acked = number
	for r.numOutstanding > 0 && r.outstanding[0] <= number {
		r.numOutstanding--
		copy(r.outstanding[:], r.outstanding[1:r.numOutstanding+1])
	}
	r.toRepeat = min(r.toRepeat, r.numOutstanding)
	// What was to be sent again may have arrived meanwhile.
	r.next = max(r.next, r.acked)
	if number == w.end() {
		r.sending = max(r.sending, r.completed+1)
		m.completeSend(verbs.StatusOK)
	}
}

// refused is an RNR NAK, or a NAK, of the oldest packet.
func (m *machine) handleNAK(now time.Duration, s wire.Syndrome) {
	r := &m.req
	switch {
	case s.IsRNR():
		m.counters.rnrTold.Add(1)
		m.waitForReceiver(now, s.Delay())
	case s == wire.NAKSequence:
		m.counters.gapsTold.Add(1)
		if r.next > r.acked {
			m.feedback.lost = true
			m.goBack()
			r.onRetransmit(now)
		}
	case s == wire.NAKInvalidRequest:
		m.failSend(verbs.StatusRemoteInvalidRequest)
	case s == wire.NAKRemoteAccess:
		m.failSend(verbs.StatusRemoteAccess)
	case s == wire.NAKRemoteOperation:
		m.failSend(verbs.StatusRemoteOperation)
	}
}

// rest is what a requester does that finds no receive posted.
func (m *machine) waitForReceiver(now, delay time.Duration) {
	r := &m.req
	switch {
	case r.rnrWaiting:
		return
	case r.rnrRetry != rnrInfinite && r.rnrRetries >= r.rnrRetry:
		m.failSend(verbs.StatusRNRRetryExceeded)
		return
	}
	r.rnrRetries++
	m.goBack()
	r.onAlive()
	r.rnrWaiting, r.rnrUntil = true, now+delay
}

// goBack lets everything that is not acknowledged be sent again.
func (m *machine) goBack() {
	r := &m.req
	r.next, r.sending, r.flight, r.toRepeat = r.acked, r.completed, 0, r.numOutstanding
	r.sampling = false
}

// readAnswered stores what a read brought: the packet that is expected.
func (m *machine) handleReadResponse(w *sendWork, payload []byte) {
	off := (m.req.acked - w.first) * m.mtu
	if uint64(len(payload)) != min(m.mtu, w.length-off) {
		return // damaged or forged: it is asked for again
	}
	m.storeResponse(w, off, payload)
}

// store puts an answer into a work request's memory.
func (m *machine) storeResponse(w *sendWork, off uint64, b []byte) {
	if !m.scatter(w.sgl, off, b) {
		m.failSend(verbs.StatusLocalProtection)
		return
	}
	m.advance(w, m.req.acked+1)
}

// scatter copies to the memory of a list, from off on.
func (m *machine) scatter(sgl []verbs.SGE, off uint64, b []byte) bool {
	var room [4][]byte
	pieces, ok := m.keys.gatherLocked(m.domain, sgl, off, uint64(len(b)), true, room[:0])
	if !ok {
		return false
	}
	for _, p := range pieces {
		b = b[copy(p, b):]
	}
	return true
}

// requesterExpires sends again, or gives up, or tries again after a rest.
func (m *machine) expireRequester(now time.Duration) {
	r := &m.req
	if r.rnrWaiting {
		if now >= r.rnrUntil {
			r.rnrWaiting = false
		}
		return
	}
	retransmit, failed := r.check(now)
	switch {
	case failed && r.completed < r.posted:
		m.counters.givenUp.Add(1)
		m.failSend(verbs.StatusRetryExceeded)
	case retransmit:
		m.counters.timeouts.Add(1)
		m.feedback.timeouts = r.backoff
		m.goBack()
		r.onRetransmit(now)
	}
}

// finish ends the oldest work request.
func (m *machine) completeSend(status verbs.Status) {
	r := &m.req
	w := r.sends.at(r.completed)
	r.completed++
	if !w.wr.Signaled && status == verbs.StatusOK {
		return
	}
	m.completer.sendCompleted(verbs.WC{ID: w.wr.ID, Status: status, Op: completionOf(w.wr.Op)}, r.completed)
}

// fail ends the oldest work request and breaks the queue pair.
func (m *machine) failSend(status verbs.Status) {
	m.completeSend(status)
	m.enterError()
}

func (m *machine) flushSends() {
	r := &m.req
	for r.completed < r.posted {
		m.completeSend(verbs.StatusFlushed)
	}
	r.sending, r.acked, r.next, r.highest, r.flight, r.numOutstanding = r.posted, r.postedPackets, r.postedPackets, r.postedPackets, 0, 0
	r.toRepeat, r.rnrWaiting = 0, false
	r.onAlive()
}

func completionOf(op verbs.Opcode) verbs.WCOp {
	switch op {
	case verbs.OpSend, verbs.OpSendImm:
		return verbs.WCSend
	case verbs.OpWrite, verbs.OpWriteImm:
		return verbs.WCWrite
	case verbs.OpRead:
		return verbs.WCRead
	}
	return verbs.WCAtomic
}
