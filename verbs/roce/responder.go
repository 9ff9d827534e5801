package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// responder is the half of a queue pair that executes the requests of the peer
// (specification, volume 1, 9.7.5). It numbers the peer's request packets from 0 on.
type responder struct {
	limit int
	recvs soft.Ring[recvWork]

	posted   uint64
	consumed uint64 // receives that messages have consumed

	first         verbs.PSN // PSN of packet 0
	expected      uint64
	completed     uint32 // messages, modulo 2^24: the MSN
	minRNR        uint8
	maxReadAtomic uint8

	message message
	// nakSent is set after a NAK of a sequence error or an RNR NAK: until the expected
	// packet arrives, later ones are dropped silently.
	nakSent bool
	// lastWasData is set when the packet before the expected one belonged to a SEND or
	// WRITE.
	lastWasData bool

	// What to send to the requester: responses to READs and atomics, oldest first, then
	// one ACK or NAK. After a sequence error it may be an ACK and a NAK (ackFirst).
	responses    [maxReadAtomic]response
	numResponses int
	// readsPaused stops READ responses until readsPausedUntil. readCredit is the window
	// cost of the READs that were requested in parts, see readPacer.
	readsPaused      bool
	readsPausedUntil time.Duration
	readCredit       uint64
	ack              rocewire.Syndrome
	ackNumber        uint64 // the packet that ack is for
	ackFirst         bool   // send an ACK of the packet before ackNumber first
	ackPending       bool
	// ackDelayed is set while ack, which is then an ACK, waits until ackDeadline for a
	// request to travel with. delayedAcks is the number of messages that it
	// acknowledges.
	ackDelayed  bool
	ackDeadline time.Duration
	delayedAcks int
	// lastShort is when the last short message arrived. shortsFrequent is set when the
	// one before it was at most piggybackTime earlier.
	lastShort      time.Duration
	shortsFrequent bool
	// sendsRequests is set when this side posts a request, and cleared when a delayed
	// ACK had no request to travel with.
	sendsRequests bool
	cnpPending    bool
	lastCNP       time.Duration // when cnpSent is set
	cnpSent       bool

	// atomics holds the results of the last atomics, for duplicate requests.
	atomics    [maxReadAtomic]atomicResult
	numAtomics uint64 // number of atomics executed
}

// message is the incoming message that has begun and not ended.
type message struct {
	kind     messageKind
	received uint64 // bytes received
	length   uint64 // of a WRITE, from its RETH
	addr     uint64
	rkey     verbs.RKey
}

type messageKind uint8

const (
	noMessage messageKind = iota
	sendMessage
	writeMessage
)

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	length uint64
}

// connect applies the attributes of the transition to RTR.
func (r *responder) connect(a verbs.RTRAttr) {
	r.first, r.minRNR, r.maxReadAtomic = a.Peer.PSN, a.MinRNRTimer, a.MaxDestReadAtomic
}

// postRecv posts a receive. The caller has checked it, and that the queue is not full.
// Slots below freed are free.
func (m *machine) postRecv(wr *verbs.RecvWR, freed uint64) {
	r := &m.resp
	r.recvs.Grow(freed, r.posted, r.limit)
	w := r.recvs.At(r.posted)
	w.id, w.length, w.sgl = wr.ID, wr.Len(), append(w.sgl[:0], wr.SGL...)
	r.posted++
	if m.state == verbs.StateErr {
		m.flushRecvs()
	}
}

// handleRequest processes a request packet of the peer.
func (m *machine) handleRequest(now time.Duration, h *rocewire.Header, payload []byte) {
	r := &m.resp
	number, ok := numberOf(r.first, h.PSN, r.expected)
	switch {
	case !ok:
		return
	case number > r.expected:
		if !r.nakSent {
			r.nakSent = true
			m.counters.nakSeqSent.Add(1)
			m.path.missing.Add(1)
			m.queueSequenceNAK()
		}
		return
	case number < r.expected:
		m.handleDuplicate(number, h)
		return
	}
	r.nakSent = false
	switch {
	case h.Op.IsSend():
		m.handleSend(now, h, payload)
	case h.Op.IsWrite():
		m.handleWrite(now, h, payload)
	case r.message.kind != noMessage:
		m.reject(rocewire.NAKInvalidRequest)
	case h.Op == rocewire.ReadRequest:
		m.handleRead(h)
	case h.Op.IsAtomic():
		m.handleAtomic(h)
	default: // FLUSH and ATOMIC WRITE are not supported
		m.reject(rocewire.NAKInvalidRequest)
	}
}

// handleDuplicate processes a request that was executed before: its response was lost.
func (m *machine) handleDuplicate(number uint64, h *rocewire.Header) {
	r := &m.resp
	m.counters.duplicates.Add(1)
	if !h.Op.IsAtomic() && h.Op != rocewire.ReadRequest {
		if !r.ackPending {
			m.queueAck(rocewire.AckUnlimited, r.expected-1)
		}
		return
	}
	// A READ of more than was requested before is no duplicate.
	read := h.Op == rocewire.ReadRequest && number+m.packetsOf(uint64(h.Length)) <= r.expected && m.checkRead(h) == 0
	repeated := response{number: number, read: true, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length), duplicate: true}
	for i := range r.numResponses {
		switch a := &r.responses[i]; {
		case number < a.number || number >= a.number+m.packetsOf(a.length):
			continue
		case read && number < a.number+a.sent/m.mtu:
			// It was sent, so it was lost. Send it again from there; the requester drops the
			// rest of the earlier response.
			repeated.msn = a.msn
			*a = repeated
		}
		return // the response will be sent
	}
	if r.numResponses >= int(r.maxReadAtomic) {
		return
	}
	if h.Op == rocewire.ReadRequest {
		if read {
			m.queueResponse(repeated)
		}
		return
	}
	for _, a := range r.atomics {
		if a.valid && a.number == number {
			m.queueResponse(response{number: number, value: a.value, duplicate: true})
		}
	}
}

// reject answers the current request with a NAK and moves the queue pair to ERR
// (specification, volume 1, 9.9.3.1, class C).
func (m *machine) reject(s rocewire.Syndrome) {
	m.counters.rejected.Add(1)
	m.queueAck(s, m.resp.expected)
	if m.resp.message.kind == sendMessage {
		m.resp.consumed-- // flush this receive, too
	}
	m.resp.message.kind = noMessage
	m.enterError()
	if s == rocewire.NAKRemoteAccess {
		m.completer.asyncEvent(verbs.EventQPAccess)
	} else {
		m.completer.asyncEvent(verbs.EventQPRequest)
	}
}

// failRecv completes the current receive with an error and sends a NAK to the peer.
func (m *machine) failRecv(own verbs.Status, theirs rocewire.Syndrome) {
	m.resp.message.kind = noMessage
	m.completeRecv(verbs.WC{Status: own}, false)
	m.reject(theirs)
}

// acceptPacket advances to the next packet, and counts a message that has ended.
func (m *machine) acceptPacket(now time.Duration, h *rocewire.Header) {
	r := &m.resp
	r.expected++
	r.lastWasData = true
	if h.Op.EndsMessage() {
		r.completed = (r.completed + 1) & psnMask
		r.message.kind = noMessage
	}
	if !h.AckReq {
		return
	}
	mayDelay, alreadyDelayed := !r.ackPending || r.ackDelayed, r.ackPending && r.ackDelayed
	m.queueAck(rocewire.AckUnlimited, r.expected-1)
	if mayDelay && r.sendsRequests && m.state == verbs.StateRTS && mayDelayAck(h) {
		m.delayAck(now, alreadyDelayed)
	}
}

// fitsMessage checks a packet's position in its message, and its size (specification,
// volume 1, 9.7.4.1.2).
func (m *machine) fitsMessage(kind messageKind, h *rocewire.Header, payload []byte) bool {
	n := uint64(len(payload))
	switch begun := m.resp.message.kind; {
	case h.Op.StartsMessage() != (begun == noMessage), begun != noMessage && begun != kind:
		return false
	case !h.Op.EndsMessage():
		return n == m.mtu
	case h.Op.StartsMessage():
		return n <= m.mtu
	default:
		return n >= 1 && n <= m.mtu
	}
}

// consumeRecv takes the oldest receive for a message. If none is posted, it queues an
// RNR NAK and returns false.
func (m *machine) consumeRecv() bool {
	r := &m.resp
	if r.consumed == r.posted {
		r.nakSent = true // drop what follows
		m.counters.rnrSent.Add(1)
		m.queueAck(rocewire.RNR(r.minRNR), r.expected)
		return false
	}
	r.consumed++
	return true
}

// completeRecv completes the receive that was consumed last.
func (m *machine) completeRecv(wc verbs.WC, solicited bool) {
	wc.ID = m.resp.recvs.At(m.resp.consumed - 1).id
	m.completer.recvCompleted(wc, m.resp.consumed, solicited)
}

func (m *machine) flushRecvs() {
	r := &m.resp
	if r.message.kind == sendMessage {
		r.message.kind = noMessage
		r.consumed--
	}
	for r.consumed < r.posted {
		r.consumed++
		m.completeRecv(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}

// reset clears everything but the size of the queue.
func (r *responder) reset() {
	*r = responder{limit: r.limit, recvs: r.recvs}
}
