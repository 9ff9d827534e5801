package roce

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// handleResponse processes a packet of the peer's responder.
func (m *machine) handleResponse(now time.Duration, h *rocewire.Header, payload []byte) {
	r := &m.req
	number, ok := numberOf(r.first, h.PSN, r.acked)
	if !ok || number >= r.highest { // for a packet that was not sent (9.7.5.1.1: ghost acknowledgements)
		return
	}
	before := r.acked
	progress := func() {
		if r.acked != before {
			before = r.acked
			if r.backoff > 0 && r.acked < r.highest {
				m.feedback.lost, m.feedback.doubtful = true, r.srtt == 0 // more than the retransmitted packet was missing
			}
			if r.suspected {
				r.suspected = false
				if took := now - r.startedAt; took >= r.srtt/2 && took <= 2*r.srtt+granularity {
					m.path.lost.Add(1)
				}
			}
			r.rnrRetries = 0
			r.onProgress(now, r.acked, r.acked < r.highest)
		}
	}
	defer progress()
	switch {
	case h.Op == rocewire.Ack && h.Syndrome.IsAck():
		m.acknowledge(number + 1)
		return
	case m.acknowledge(number) || r.acked != number || r.completed == r.posted:
		return
	case h.Op == rocewire.Ack:
		progress() // a NAK acknowledges all packets before it
		m.handleNAK(now, h.Syndrome)
		return
	}
	w := r.sends.At(r.completed)
	switch {
	case h.Op.IsReadResponse() && w.wr.Op == verbs.OpRead:
		m.handleReadResponse(w, payload)
	case h.Op == rocewire.AtomicAck && w.wr.Op >= verbs.OpCompareSwap:
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], h.Orig)
		m.storeResponse(w, 0, b[:])
	}
}

// acknowledge marks all packets below a number as acknowledged. READs and atomics are
// complete only with their response: if one is missing, acknowledge has it requested
// again (specification, volume 1, 9.7.5.1.2) and returns true.
func (m *machine) acknowledge(number uint64) (missing bool) {
	r := &m.req
	for r.acked < number && r.completed < r.posted {
		w := r.sends.At(r.completed)
		if w.isReadOrAtomic() {
			if again := r.acked + 1; r.repeatedAt != again {
				r.repeatedAt = again
				m.path.lost.Add(1)
				m.feedback.lost, m.feedback.doubtful = true, false
				m.goBack()
			}
			return true
		}
		m.advance(w, min(number, w.end()))
	}
	return false
}

// advance marks the packets of the oldest work request below a number as acknowledged.
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
	// Packets that were to be retransmitted may have arrived in the meantime.
	r.next = max(r.next, r.acked)
	if number == w.end() {
		r.sending = max(r.sending, r.completed+1)
		m.completeSend(verbs.StatusOK)
	}
}

// handleNAK processes a NAK or RNR NAK of the oldest packet.
func (m *machine) handleNAK(now time.Duration, s rocewire.Syndrome) {
	r := &m.req
	switch {
	case s.IsRNR():
		m.counters.rnrReceived.Add(1)
		m.waitForReceiver(now, s.Delay())
	case s == rocewire.NAKSequence:
		m.counters.nakSeqReceived.Add(1)
		if r.next > r.acked {
			m.path.lost.Add(1)
			m.feedback.lost, m.feedback.doubtful = true, false
			m.goBack()
			r.onRetransmit(now)
		}
	case s == rocewire.NAKInvalidRequest:
		m.failSend(verbs.StatusRemoteInvalidRequest)
	case s == rocewire.NAKRemoteAccess:
		m.failSend(verbs.StatusRemoteAccess)
	case s == rocewire.NAKRemoteOperation:
		m.failSend(verbs.StatusRemoteOperation)
	}
}

// waitForReceiver handles an RNR NAK: it waits before it sends again.
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
	if r.backoff > 0 {
		r.keepTimeout(now)
	}
	m.goBack()
	r.onAlive()
	r.rnrWaiting, r.rnrUntil = true, now+delay
}

// goBack lets all packets that are not acknowledged be sent again (go-back-N).
func (m *machine) goBack() {
	r := &m.req
	r.next, r.sending, r.flight, r.toRepeat = r.acked, r.completed, 0, r.numOutstanding
	r.sampling = false
}

// handleReadResponse stores the payload of the expected packet of a READ response.
func (m *machine) handleReadResponse(w *sendWork, payload []byte) {
	off := (m.req.acked - w.first) * m.mtu
	if uint64(len(payload)) != min(m.mtu, w.length-off) {
		return // damaged or forged; the timer requests it again
	}
	m.storeResponse(w, off, payload)
}

// storeResponse copies the content of a response into the memory of a work request.
func (m *machine) storeResponse(w *sendWork, off uint64, b []byte) {
	if !m.scatter(w.sgl, off, b) {
		m.failSend(verbs.StatusLocalProtection)
		return
	}
	m.advance(w, m.req.acked+1)
}

// scatter copies b into the memory of a list, beginning at offset off.
func (m *machine) scatter(sgl []verbs.SGE, off uint64, b []byte) bool {
	var space [4][]byte
	buffers, ok := m.keys.GatherLocked(m.domain, sgl, off, uint64(len(b)), true, space[:0])
	if !ok {
		return false
	}
	for _, p := range buffers {
		b = b[copy(p, b):]
	}
	return true
}

// expireRequester handles the timers of the requester: it retransmits, fails the queue
// pair, or ends the wait for a receive.
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
		m.counters.retriesExceeded.Add(1)
		m.failSend(verbs.StatusRetryExceeded)
	case retransmit:
		m.counters.timeouts.Add(1)
		r.suspected = true
		m.feedback.timeouts, m.feedback.doubtful = r.backoff, r.srtt == 0
		m.goBack()
		r.onRetransmit(now)
	}
}

// completeSend ends the oldest work request.
func (m *machine) completeSend(status verbs.Status) {
	r := &m.req
	w := r.sends.At(r.completed)
	r.completed++
	if !w.wr.Signaled && status == verbs.StatusOK {
		return
	}
	m.completer.sendCompleted(verbs.WC{ID: w.wr.ID, Status: status, Op: completionOf(w.wr.Op)}, r.completed)
}

// failSend ends the oldest work request and moves the queue pair to ERR.
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
