package roce

import (
	"encoding/binary"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// requester is the half of a queue pair that asks. Work requests and packets are
// numbered from 0 on:
//
//	freed <= finished <= sending <= posted                 work requests
//	acked <= next <= highest, posted packets               packets
type requester struct {
	limit int
	sends ring[sendWork]

	posted   uint64
	finished uint64        // the oldest that has not ended
	sending  uint64        // the next one to send, or a part of it
	freed    atomic.Uint64 // written by polls

	first   verbs.PSN // of packet 0
	planned uint64    // packets of what is posted
	acked   uint64    // all below are acknowledged
	next    uint64    // to send
	highest uint64    // all below have been sent, perhaps more than once
	flight  uint64    // charge of the packets from acked to next

	// asks are the ends of the requests for reads and atomics that were sent and not
	// answered, oldest first. What is asked for again is asked for in the same
	// pieces, as the peer knows only those that reached it.
	maxAsks uint8
	asks    [maxReadAtomic]uint64
	asking  int
	again   int    // of them, those that goBack left to be sent again
	missing uint64 // 1 + the packet that was asked for again, as its answer was left out

	patience
	rnrRetry   uint8
	rnrRetries uint8
	resting    bool // until the peer may have posted a receive
	restsUntil time.Duration
}

// sendWork is a slot of the send queue.
type sendWork struct {
	wr      verbs.SendWR // SGL and Inline are in the slot's own
	sgl     []verbs.SGE
	inline  []byte
	length  uint64
	first   uint64 // packet
	packets uint64 // 1 at least
}

func (w *sendWork) asks() bool  { return w.wr.Op >= verbs.OpRead }
func (w *sendWork) end() uint64 { return w.first + w.packets }

// sends are allowed while this holds.
func (r *requester) full() bool { return r.posted-r.freed.Load() >= uint64(r.limit) }

// post takes a work request that was looked at, where the queue is not full.
func (m *machine) post(wr *verbs.SendWR) {
	r := &m.req
	r.sends.grow(r.freed.Load(), r.posted, r.limit)
	w := r.sends.at(r.posted)
	w.wr = *wr
	w.wr.SGL, w.wr.Inline = nil, nil
	w.sgl, w.inline = append(w.sgl[:0], wr.SGL...), append(w.inline[:0], wr.Inline...)
	w.length = wr.Len()
	if wr.Inline != nil {
		w.sgl = w.sgl[:0]
		w.wr.Inline = w.inline
	}
	w.first = r.planned
	w.packets = 1
	if w.wr.Op != verbs.OpCompareSwap && w.wr.Op != verbs.OpFetchAdd {
		w.packets = max(1, (w.length+m.mtu-1)/m.mtu)
	}
	r.planned += w.packets
	r.posted++
	m.resp.talks = true
	if m.state == verbs.StateErr {
		m.flushSends()
	}
}

// charged is what the packets of a work request from one number to another count. Part
// by part that is as much as all at once, also where it is rounded.
func (m *machine) charged(w *sendWork, from, to uint64) uint64 {
	return m.chargedTo(w, to-w.first) - m.chargedTo(w, from-w.first)
}

// chargedTo is what its first n packets count.
func (m *machine) chargedTo(w *sendWork, n uint64) uint64 {
	switch {
	case w.wr.Op >= verbs.OpCompareSwap:
		return charge(n, 8*n)
	case w.wr.Op == verbs.OpRead:
		return charge(n, min(n*m.mtu, w.length)) * m.readCost / readCostOne
	}
	return charge(n, min(n*m.mtu, w.length))
}

// nextRequest makes the next packet of the send queue.
func (m *machine) nextRequest(now time.Duration, room uint64, p *packet) bool {
	r := &m.req
	if m.state != verbs.StateRTS || r.resting || r.sending == r.posted || r.next-r.acked >= maxFlight {
		return false
	}
	w := r.sends.at(r.sending)
	if w.wr.Fence && r.asking > r.again && r.next == w.first {
		return false
	}
	if w.asks() && r.again == 0 && r.asking >= int(r.maxAsks) && r.maxAsks > 0 {
		return false
	}
	p.PSN = psnOf(r.first, r.next)
	count, status := uint64(1), m.localFault(w)
	if status == verbs.StatusOK {
		switch w.wr.Op {
		case verbs.OpRead:
			count = m.readRequest(w, room, p)
		case verbs.OpCompareSwap, verbs.OpFetchAdd:
			m.atomicRequest(w, p)
		default:
			status = m.dataRequest(w, room, p)
		}
	}
	if status != verbs.StatusOK {
		// It fails in its turn, after those before it.
		if r.finished == r.sending {
			m.fail(status)
		}
		return false
	}
	if p.Again = r.next < r.highest; p.Again {
		m.counts.sentAgain.Add(1)
	}
	switch {
	case !w.asks():
	case r.again > 0:
		r.again--
	default:
		r.asks[r.asking] = r.next + count
		r.asking++
	}
	r.flight += m.charged(w, r.next, r.next+count)
	r.next += count
	r.onSend(now, r.next, p.Again, mayBeHeld(&p.Header))
	r.highest = max(r.highest, r.next)
	if r.next == w.end() {
		r.sending++
	}
	return true
}

// localFault looks at a work request's own side, when its first packet is sent.
func (m *machine) localFault(w *sendWork) verbs.Status {
	switch {
	case w.length > maxMessage:
		return verbs.StatusLocalLength
	case w.asks() && m.req.maxAsks == 0:
		return verbs.StatusLocalQPOperation
	case m.req.next == w.first && !m.keys.usableLocked(m.domain, w.sgl, w.asks()):
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// dataRequest is a packet of a SEND or a WRITE.
func (m *machine) dataRequest(w *sendWork, room uint64, p *packet) verbs.Status {
	r := &m.req
	k := r.next - w.first
	off := k * m.mtu
	p.Len = min(m.mtu, w.length-off)
	first, last := k == 0, k == w.packets-1
	p.Op = dataOpcode(w.wr.Op, first, last)
	p.Pad = uint8(-p.Len & 3)
	p.Solicited = last && w.wr.Solicited
	if first && p.Op.HasReth() {
		p.Addr, p.RKey, p.Length = w.wr.RemoteAddr, w.wr.RKey, uint32(w.length) //nolint:gosec // at most maxMessage
	}
	p.Imm = w.wr.Imm
	// An acknowledgement is asked for where the stream may stop.
	p.AckReq = last || (k+1)%ackEvery == 0 || r.next-r.acked+1 >= maxFlight || room < charge(2, p.Len+m.mtu)
	if w.wr.Inline != nil {
		if p.Len > 0 {
			p.Payload = append(p.Payload, w.inline[off:off+p.Len])
		}
		return verbs.StatusOK
	}
	var ok bool
	if p.Payload, ok = m.keys.gatherLocked(m.domain, w.sgl, off, p.Len, false, p.Payload); !ok {
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// dataOpcode is the one of a packet at that place of its message.
func dataOpcode(op verbs.Opcode, first, last bool) wire.Opcode {
	var o [5]wire.Opcode // first, middle, last, only; the last two with immediate data where there is
	switch op {
	case verbs.OpSend:
		o = [5]wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLast, wire.SendOnly}
	case verbs.OpSendImm:
		o = [5]wire.Opcode{wire.SendFirst, wire.SendMiddle, wire.SendLastImm, wire.SendOnlyImm}
	case verbs.OpWrite:
		o = [5]wire.Opcode{wire.WriteFirst, wire.WriteMiddle, wire.WriteLast, wire.WriteOnly}
	default:
		o = [5]wire.Opcode{wire.WriteFirst, wire.WriteMiddle, wire.WriteLastImm, wire.WriteOnlyImm}
	}
	switch {
	case first && last:
		return o[3]
	case last:
		return o[2]
	case first:
		return o[0]
	}
	return o[1]
}

// readRequest asks for a part of a read, and returns how many packets it is.
func (m *machine) readRequest(w *sendWork, room uint64, p *packet) uint64 {
	r := &m.req
	off := (r.next - w.first) * m.mtu
	count := min(w.end()-r.next, readPackets, max(1, room*readCostOne/m.readCost/charge(1, m.mtu)))
	if r.again > 0 {
		count = r.asks[r.asking-r.again] - r.next
	}
	p.Op, p.AckReq = wire.ReadRequest, true
	p.Addr, p.RKey = w.wr.RemoteAddr+off, w.wr.RKey
	p.Length = uint32(min(count*m.mtu, w.length-off)) //nolint:gosec // at most maxMessage
	return count
}

func (m *machine) atomicRequest(w *sendWork, p *packet) {
	p.AckReq, p.Addr, p.RKey = true, w.wr.RemoteAddr, w.wr.RKey
	if w.wr.Op == verbs.OpFetchAdd {
		p.Op, p.Swap = wire.FetchAdd, w.wr.Add
		return
	}
	p.Op, p.Swap, p.Compare = wire.CompareSwap, w.wr.Swap, w.wr.Compare
}

// answered is a packet of the peer's responder.
func (m *machine) answered(now time.Duration, h *wire.Header, payload []byte) {
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
				m.note.lost = true // the packet that asked was not the only one that was missing
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
	case m.acknowledge(number) || r.acked != number || r.finished == r.posted:
		return
	case h.Op == wire.Ack:
		progress() // what a refusal says of those before it comes before it
		m.refused(now, h.Syndrome)
		return
	}
	w := r.sends.at(r.finished)
	switch {
	case h.Op.IsReadResponse() && w.wr.Op == verbs.OpRead:
		m.readAnswered(w, payload)
	case h.Op == wire.AtomicAck && w.wr.Op >= verbs.OpCompareSwap:
		var b [8]byte
		binary.NativeEndian.PutUint64(b[:], h.Orig)
		m.store(w, 0, b[:])
	}
}

// acknowledge takes all packets below a number as done. What was asked for is
// done only when it was answered: an answer that is missing is asked for again
// (specification, volume 1, 9.7.5.1.2), and true returned.
func (m *machine) acknowledge(number uint64) (missing bool) {
	r := &m.req
	for r.acked < number && r.finished < r.posted {
		w := r.sends.at(r.finished)
		if w.asks() {
			if again := r.acked + 1; r.missing != again {
				r.missing = again
				m.note.lost = true
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
	m.note.acked += m.charged(w, r.acked, number)
	if r.next > r.acked {
		r.flight -= m.charged(w, r.acked, min(number, r.next))
	}
	r.acked = number
	for r.asking > 0 && r.asks[0] <= number {
		r.asking--
		copy(r.asks[:], r.asks[1:r.asking+1])
	}
	r.again = min(r.again, r.asking)
	// What was to be sent again may have arrived meanwhile.
	r.next = max(r.next, r.acked)
	if number == w.end() {
		r.sending = max(r.sending, r.finished+1)
		m.finish(verbs.StatusOK)
	}
}

// refused is an RNR NAK, or a NAK, of the oldest packet.
func (m *machine) refused(now time.Duration, s wire.Syndrome) {
	r := &m.req
	switch {
	case s.IsRNR():
		m.counts.rnrTold.Add(1)
		m.rest(now, s.Delay())
	case s == wire.NAKSequence:
		m.counts.gapsTold.Add(1)
		if r.next > r.acked {
			m.note.lost = true
			m.goBack()
			r.onResend(now)
		}
	case s == wire.NAKInvalidRequest:
		m.fail(verbs.StatusRemoteInvalidRequest)
	case s == wire.NAKRemoteAccess:
		m.fail(verbs.StatusRemoteAccess)
	case s == wire.NAKRemoteOperation:
		m.fail(verbs.StatusRemoteOperation)
	}
}

// rest is what a requester does that finds no receive posted.
func (m *machine) rest(now, delay time.Duration) {
	r := &m.req
	switch {
	case r.resting:
		return
	case r.rnrRetry != rnrForEver && r.rnrRetries >= r.rnrRetry:
		m.fail(verbs.StatusRNRRetryExceeded)
		return
	}
	r.rnrRetries++
	m.goBack()
	r.onAlive()
	r.resting, r.restsUntil = true, now+delay
}

// goBack lets everything that is not acknowledged be sent again.
func (m *machine) goBack() {
	r := &m.req
	r.next, r.sending, r.flight, r.again = r.acked, r.finished, 0, r.asking
	r.sampling = false
}

// readAnswered stores what a read brought: the packet that is expected.
func (m *machine) readAnswered(w *sendWork, payload []byte) {
	off := (m.req.acked - w.first) * m.mtu
	if uint64(len(payload)) != min(m.mtu, w.length-off) {
		return // damaged or forged: it is asked for again
	}
	m.store(w, off, payload)
}

// store puts an answer into a work request's memory.
func (m *machine) store(w *sendWork, off uint64, b []byte) {
	if !m.scatter(w.sgl, off, b) {
		m.fail(verbs.StatusLocalProtection)
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
func (m *machine) requesterExpires(now time.Duration) {
	r := &m.req
	if r.resting {
		if now >= r.restsUntil {
			r.resting = false
		}
		return
	}
	resend, giveUp := r.look(now)
	switch {
	case giveUp && r.finished < r.posted:
		m.counts.givenUp.Add(1)
		m.fail(verbs.StatusRetryExceeded)
	case resend:
		m.counts.timeouts.Add(1)
		m.note.timeouts = r.backoff
		m.goBack()
		r.onResend(now)
	}
}

// wants says whether next may have a request to send, were there room.
func (r *requester) wants() bool {
	return !r.resting && r.sending < r.posted && r.next-r.acked < maxFlight
}

// isShort says whether what is sent next, while it wants to, is of one packet.
func (r *requester) isShort() bool { return r.sends.at(r.sending).packets == 1 }

// unsent is what the packets that are still to be sent count at most.
func (m *machine) unsent() uint64 {
	n := m.req.planned - m.req.next
	return charge(n, n*m.mtu)
}

// finish ends the oldest work request.
func (m *machine) finish(status verbs.Status) {
	r := &m.req
	w := r.sends.at(r.finished)
	r.finished++
	if !w.wr.Signaled && status == verbs.StatusOK {
		return
	}
	m.out.sent(verbs.WC{ID: w.wr.ID, Status: status, Op: completionOf(w.wr.Op)}, r.finished)
}

// fail ends the oldest work request and breaks the queue pair.
func (m *machine) fail(status verbs.Status) {
	m.finish(status)
	m.breaks()
}

func (m *machine) flushSends() {
	r := &m.req
	for r.finished < r.posted {
		m.finish(verbs.StatusFlushed)
	}
	r.sending, r.acked, r.next, r.highest, r.flight, r.asking = r.posted, r.planned, r.planned, r.planned, 0, 0
	r.again, r.resting = 0, false
	r.onAlive()
}

// reset forgets everything but the queue's size.
func (r *requester) reset() {
	r.posted, r.finished, r.sending, r.planned, r.acked, r.next, r.highest, r.flight = 0, 0, 0, 0, 0, 0, 0, 0
	r.freed.Store(0)
	r.asking, r.again, r.missing, r.rnrRetries, r.resting = 0, 0, 0, 0, false
	r.patience = patience{}
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
