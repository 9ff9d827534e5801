package tcp

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// responder is the half of a queue pair that executes the requests of the peer, in order.
type responder struct {
	limit int
	recvs soft.Ring[recvWork]

	posted   uint64
	consumed uint64 // receives that messages have taken

	expected uint64 // number of the request to execute, or under way
	started  bool   // a request had that number
	minRNR   uint8
	maxReads int

	message   message
	reported  time.Duration // when the requester was last told that a long message comes in
	operation frame.Kind    // CompareSwap or FetchAdd under way
	addr      uint64        // its operand
	rkey      verbs.RKey

	// dropping is set from an RNR until the request that it named comes again. All others
	// are dropped: they were on their way.
	dropping bool

	// What to send.
	ackDue, rnrDue, readyDue bool
	responses                [maxReadAtomic]response // oldest first
	numResponses             int
	refused                  bool // NAK of expected is to be sent, then the queue pair breaks
	refusal                  verbs.Status
	refusedAt                time.Duration
}

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	length uint64
}

// message is the SEND or WRITE that is coming in.
type message struct {
	active    bool
	kind      frame.Kind
	total     uint64
	got       uint64
	addr      uint64
	rkey      verbs.RKey
	imm       uint32
	solicited bool
	wantAck   bool
}

// response is a READ or atomic to answer.
type response struct {
	number uint64
	atomic bool
	value  uint64
	addr   uint64
	rkey   verbs.RKey
	length uint64
	sent   uint64
}

// postRecv posts a receive. The caller has checked it, and that the queue is not full.
func (m *machine) postRecv(wr *verbs.RecvWR, freed uint64) {
	r := &m.resp
	r.recvs.Grow(freed, r.posted, r.limit)
	w := r.recvs.At(r.posted)
	w.id, w.sgl, w.length = wr.ID, append(w.sgl[:0], wr.SGL...), wr.Len()
	r.posted++
	if r.dropping {
		r.readyDue = true // after RNR, if that is still due: the requester has to know that it sends again
	}
	if m.state == verbs.StateErr {
		m.flushRecvs()
	}
}

// acknowledged notes that a frame with the count expected goes out.
func (r *responder) acknowledged() { r.ackDue = false }

// begin takes the first frame of a request.
func (m *machine) begin(h *frame.Header) (place, error) {
	r := &m.resp
	if (r.dropping || !r.started) && h.Number != r.expected { // before the first one: the PSNs differ
		return place{}, nil
	}
	if h.Number != r.expected || r.message.active {
		return place{}, protocolError(h, "comes where number %d is expected", r.expected)
	}
	r.started = true
	if m.state == verbs.StateRTR && !m.established {
		m.established = true
		m.out.asyncEvent(verbs.EventCommEstablished)
	}
	if status := m.check(h); status != verbs.StatusOK {
		m.refuse(status)
		return place{}, nil
	}
	switch h.Kind {
	case frame.Read:
		r.dropping, r.readyDue = false, false
		m.queue(response{number: r.expected, addr: h.Addr, rkey: verbs.RKey(h.RKey), length: h.Total})
		return place{}, nil
	case frame.CompareSwap, frame.FetchAdd:
		r.dropping, r.readyDue = false, false
		r.operation, r.addr, r.rkey = h.Kind, h.Addr, verbs.RKey(h.RKey)
		return place{kind: placeOperands}, nil
	case frame.Write:
	default:
		if r.consumed == r.posted {
			r.dropping, r.rnrDue, r.readyDue = true, true, false
			return place{}, nil
		}
		r.consumed++
	}
	r.dropping, r.readyDue = false, false
	r.message = message{
		active: true, kind: h.Kind, total: h.Total, addr: h.Addr, rkey: verbs.RKey(h.RKey), imm: h.Imm,
		solicited: h.Flags&frame.Solicited != 0, wantAck: h.Flags&frame.WantAck != 0,
	}
	if h.Kind == frame.Send || h.Kind == frame.SendImm {
		w := r.recvs.At(r.consumed - 1)
		if h.Total > w.length {
			m.failRecv(verbs.StatusLocalLength, verbs.StatusRemoteInvalidRequest)
			return place{}, nil
		}
		if h.Total > 0 && !m.keys.Usable(m.domain, w.sgl, true) {
			m.failRecv(verbs.StatusLocalProtection, verbs.StatusRemoteOperation)
			return place{}, nil
		}
	}
	return m.placeOf(), nil
}

// check returns the status with which a request is refused; StatusOK for none.
func (m *machine) check(h *frame.Header) verbs.Status {
	r := &m.resp
	var need verbs.Access
	length := h.Total
	switch h.Kind {
	case frame.Send, frame.SendImm:
		return verbs.StatusOK
	case frame.Write, frame.WriteImm:
		need = verbs.AccessRemoteWrite
	case frame.Read:
		need = verbs.AccessRemoteRead
	default:
		need = verbs.AccessRemoteAtomic
	}
	switch {
	case m.access&need == 0:
		return verbs.StatusRemoteInvalidRequest
	case h.Kind >= frame.Read && r.numResponses >= min(r.maxReads, maxReadAtomic):
		return verbs.StatusRemoteInvalidRequest
	case h.Kind >= frame.CompareSwap && h.Addr%8 != 0:
		return verbs.StatusRemoteInvalidRequest
	case length == 0: // an empty WRITE or READ needs no key (specification, volume 1, 9.7.5.2.4)
		return verbs.StatusOK
	}
	if _, ok := m.keys.Granted(m.domain, m.qp, h.Addr, length, verbs.RKey(h.RKey), need); !ok {
		return verbs.StatusRemoteAccess
	}
	return verbs.StatusOK
}

// placeOf returns where the next content of the message goes.
func (m *machine) placeOf() place {
	g := &m.resp.message
	switch {
	case g.total == 0:
		return place{}
	case g.kind == frame.Send || g.kind == frame.SendImm:
		return place{kind: placeRecv, sgl: m.resp.recvs.At(m.resp.consumed - 1).sgl, off: g.got}
	}
	return place{kind: placeRemote, addr: g.addr + g.got, rkey: g.rkey, need: verbs.AccessRemoteWrite}
}

// receiveData takes a frame that continues a message.
func (m *machine) receiveData(h *frame.Header) (place, error) {
	r := &m.resp
	switch {
	case r.dropping || !r.started:
		return place{}, nil
	case !r.message.active || h.Number != r.expected:
		return place{}, protocolError(h, "continues no message")
	case r.message.got+uint64(h.Length) > r.message.total:
		return place{}, protocolError(h, "has %d bytes after %d of %d", h.Length, r.message.got, r.message.total)
	}
	if m.at >= r.reported+reportTime {
		r.reported, r.ackDue = m.at, true
	}
	return m.placeOf(), nil
}

// contentPlaced counts content of the message, and completes it.
func (m *machine) contentPlaced(n uint64) {
	r := &m.resp
	g := &r.message
	if !g.active {
		return
	}
	if g.got += n; g.got < g.total {
		return
	}
	g.active = false
	r.expected++
	r.ackDue = r.ackDue || g.wantAck
	wc := verbs.WC{Op: verbs.WCRecv, Len: uint32(g.total), HasImm: g.kind.HasImm(), Imm: g.imm} //nolint:gosec // at most MaxMessage
	switch g.kind {
	case frame.Write:
		return
	case frame.WriteImm:
		wc.Op = verbs.WCRecvWrite
	}
	m.completeRecv(wc, g.solicited)
}

// executeAtomic executes an atomic whose operands have come. The caller is in an access to the
// memory.
func (m *machine) executeAtomic(operands []byte) {
	r := &m.resp
	mem, ok := m.keys.Granted(m.domain, m.qp, r.addr, 8, r.rkey, verbs.AccessRemoteAtomic)
	if !ok {
		m.refuse(verbs.StatusRemoteAccess)
		return
	}
	compare, other := binary.LittleEndian.Uint64(operands), binary.LittleEndian.Uint64(operands[8:])
	old := m.keys.FetchAndUpdate(mem, func(old uint64) uint64 {
		switch {
		case r.operation == frame.FetchAdd:
			return old + other
		case old == compare:
			return other
		}
		return old
	})
	m.queue(response{number: r.expected, atomic: true, value: old, length: 8})
}

// queue queues the response of a request, which counts as executed.
func (m *machine) queue(a response) {
	r := &m.resp
	r.responses[r.numResponses] = a
	r.numResponses++
	r.expected++
}

// nextResponse builds the next frame of the oldest response.
func (m *machine) nextResponse(h *frame.Header, s *source) bool {
	r := &m.resp
	if r.numResponses == 0 || !m.isUp() {
		return false
	}
	a := &r.responses[0]
	n := min(m.segment(), a.length-a.sent)
	h.Kind, h.Number, h.Length = frame.Response, a.number, uint32(n) //nolint:gosec // at most maxSegment
	*s = source{n: n, atomic: a.atomic, value: a.value, addr: a.addr + a.sent, rkey: a.rkey}
	if a.sent += n; a.sent == a.length {
		r.numResponses--
		copy(r.responses[:], r.responses[1:r.numResponses+1])
	}
	return true
}

// nextReply builds what has no content and goes before everything else.
func (m *machine) nextReply(h *frame.Header) bool {
	r := &m.resp
	if !m.isUp() || r.refused {
		return false
	}
	switch {
	case r.rnrDue:
		r.rnrDue = false
		h.Kind, h.Number, h.Imm = frame.RNR, r.expected, uint32(r.minRNR)
	case r.readyDue:
		r.readyDue = false
		h.Kind, h.Number = frame.Ready, r.expected
	case m.req.probeDue:
		m.req.probeDue = false
		h.Kind, h.Number = frame.Probe, m.req.sending
	default:
		return false
	}
	return true
}

// nextNAK builds the NAK of a refused request, after all responses before it, and breaks the
// queue pair.
func (m *machine) nextNAK(h *frame.Header) bool {
	r := &m.resp
	if !r.refused || !m.isUp() {
		return false
	}
	h.Kind, h.Number, h.Imm = frame.NAK, r.expected, uint32(r.refusal)
	m.enterError()
	return true
}

func (m *machine) receiveProbe() {
	r := &m.resp
	switch {
	case !r.started: // a request came before the Probe, with another PSN
	case !r.dropping:
		r.ackDue = true
	case r.consumed == r.posted:
		r.rnrDue = true
	default:
		r.readyDue = true
	}
}

// refuse answers the request under way with a NAK, which breaks the queue pair (specification,
// volume 1, 9.9.3.1, classes A and C). Nothing of the peer is read any more.
func (m *machine) refuse(status verbs.Status) {
	r := &m.resp
	if r.refused {
		return
	}
	r.refused, r.refusal, r.refusedAt = true, status, m.at
	if status == verbs.StatusRemoteAccess {
		m.out.asyncEvent(verbs.EventQPAccess)
	} else {
		m.out.asyncEvent(verbs.EventQPRequest)
	}
}

// failRecv completes the receive under way with the status own, and refuses the message with the
// status theirs.
func (m *machine) failRecv(own, theirs verbs.Status) {
	m.resp.message.active = false
	m.completeRecv(verbs.WC{Status: own}, false)
	m.refuse(theirs)
}

// completeRecv completes the receive that was taken last.
func (m *machine) completeRecv(wc verbs.WC, solicited bool) {
	r := &m.resp
	wc.ID = r.recvs.At(r.consumed - 1).id
	m.out.recvCompleted(wc, r.consumed, solicited)
}

// abandon gives a receive back that an incomplete message has taken, so that it is flushed.
func (r *responder) abandon() {
	if r.message.active && r.message.kind != frame.Write {
		r.consumed--
	}
	r.message.active = false
	r.refused, r.ackDue, r.rnrDue, r.readyDue, r.numResponses = false, false, false, false, 0
}

func (m *machine) flushRecvs() {
	r := &m.resp
	for r.consumed < r.posted {
		r.consumed++
		m.completeRecv(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}

// reset clears everything but the size of the queue.
func (r *responder) reset() {
	r.posted, r.consumed, r.expected, r.started = 0, 0, 0, false
	r.message, r.dropping, r.reported = message{}, false, 0
	r.abandon()
}
