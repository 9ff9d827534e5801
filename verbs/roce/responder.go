package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// responder is the half of a queue pair that carries out what the peer asks for
// (specification, volume 1, 9.7.5). Its packets are numbered from 0 on.
type responder struct {
	limit int
	recvs ring[recvWork]

	posted   uint64
	consumed uint64 // by messages

	first         verbs.PSN // of packet 0
	expected      uint64
	completed     uint32 // messages: the MSN
	minRNR        uint8
	maxReadAtomic uint8

	message message
	// gap says that the requester was told what is expected: until that comes,
	// what lies ahead is dropped without a word.
	nakSent bool
	// data says that the packet before the expected one was a send's or a write's.
	lastWasData bool

	// What is owed to the requester: the answers to reads and atomics, oldest
	// first, then one acknowledgement or refusal, or both where something is missing.
	responses    [maxReadAtomic]response
	numResponses int
	// paused says that answers to reads wait until pausedUntil; asked is what was asked
	// for in pieces.
	readsPaused      bool
	readsPausedUntil time.Duration
	readCredit       uint64
	ack              wire.Syndrome
	ackNumber        uint64 // the packet that it is for
	ackFirst         bool   // an acknowledgement of what was expected last goes before it
	ackPending       bool
	// held says that the reply, an acknowledgement, waits until heldUntil for
	// something to travel with; heldFor is how many messages it stands for.
	ackDelayed  bool
	ackDeadline time.Duration
	delayedAcks int
	// shortAt is when a short message came last, and quick that the one before it was
	// no longer ago than alongTime.
	lastShort      time.Duration
	shortsFrequent bool
	// talks says that this side has sent a request since an acknowledgement was last
	// held in vain.
	sendsRequests bool
	cnpPending    bool
	lastCNP       time.Duration // of the last one
	cnpSent       bool

	// atomics remembers what atomics found, for requesters that ask again.
	atomics    [maxReadAtomic]atomicResult
	numAtomics uint64 // so many, since the beginning
}

// message is the one that has begun and not ended.
type message struct {
	kind   messageKind
	done   uint64 // bytes that came
	length uint64 // of a write, by its RETH
	addr   uint64
	rkey   verbs.RKey
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

// connect takes the queue pair's attributes.
func (r *responder) connect(a verbs.RTRAttr) {
	r.first, r.minRNR, r.maxReadAtomic = a.Peer.PSN, a.MinRNRTimer, a.MaxDestReadAtomic
}

// postReceive takes a work request that was looked at, where the queue is not
// full. freed is the number below which slots are free.
func (m *machine) postRecv(wr *verbs.RecvWR, freed uint64) {
	r := &m.resp
	r.recvs.grow(freed, r.posted, r.limit)
	w := r.recvs.at(r.posted)
	w.id, w.length, w.sgl = wr.ID, wr.Len(), append(w.sgl[:0], wr.SGL...)
	r.posted++
	if m.state == verbs.StateErr {
		m.flushRecvs()
	}
}

// respond is a request of the peer.
func (m *machine) handleRequest(now time.Duration, h *wire.Header, payload []byte) {
	r := &m.resp
	number, ok := numberOf(r.first, h.PSN, r.expected)
	switch {
	case !ok:
		return
	case number > r.expected:
		if !r.nakSent {
			r.nakSent = true
			m.counters.gaps.Add(1)
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
		m.reject(wire.NAKInvalidRequest)
	case h.Op == wire.ReadRequest:
		m.handleRead(h)
	case h.Op.IsAtomic():
		m.handleAtomic(h)
	default: // FLUSH, ATOMIC WRITE: not offered
		m.reject(wire.NAKInvalidRequest)
	}
}

// repeated is a request that was carried out before: its answer was lost.
func (m *machine) handleDuplicate(number uint64, h *wire.Header) {
	r := &m.resp
	m.counters.repeated.Add(1)
	if !h.Op.IsAtomic() && h.Op != wire.ReadRequest {
		if !r.ackPending {
			m.queueAck(wire.AckUnlimited, r.expected-1)
		}
		return
	}
	// One that goes beyond what was asked for before is none.
	read := h.Op == wire.ReadRequest && number+m.packetsOf(uint64(h.Length)) <= r.expected && m.checkRead(h) == 0
	from := response{number: number, read: true, addr: h.Addr, rkey: h.RKey, length: uint64(h.Length), duplicate: true}
	for i := range r.numResponses {
		switch a := &r.responses[i]; {
		case number < a.number || number >= a.number+m.packetsOf(a.length):
			continue
		case read && number < a.number+a.sent/m.mtu: // sent, and lost: the rest behind it is passed over there
			from.msn = a.msn
			*a = from
		}
		return // the answer is on its way
	}
	if r.numResponses >= int(r.maxReadAtomic) {
		return
	}
	if h.Op == wire.ReadRequest {
		if read {
			m.queueResponse(from)
		}
		return
	}
	for _, a := range r.atomics {
		if a.valid && a.number == number {
			m.queueResponse(response{number: number, value: a.value, duplicate: true})
		}
	}
}

// refuse answers that the request at hand fails, and breaks the queue pair
// (specification, volume 1, 9.9.3.1, class C).
func (m *machine) reject(s wire.Syndrome) {
	m.counters.refused.Add(1)
	m.queueAck(s, m.resp.expected)
	if m.resp.message.kind == sendMessage {
		m.resp.consumed-- // it is flushed
	}
	m.resp.message.kind = noMessage
	m.enterError()
	if s == wire.NAKRemoteAccess {
		m.completer.asyncEvent(verbs.EventQPAccess)
	} else {
		m.completer.asyncEvent(verbs.EventQPRequest)
	}
}

// failReceive ends the receive at hand with an error of this side.
func (m *machine) failRecv(own verbs.Status, theirs wire.Syndrome) {
	m.resp.message.kind = noMessage
	m.completeRecv(verbs.WC{Status: own}, false)
	m.reject(theirs)
}

// done goes on to the next packet. A message that has ended is counted.
func (m *machine) acceptPacket(now time.Duration, h *wire.Header) {
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
	may, since := !r.ackPending || r.ackDelayed, r.ackPending && r.ackDelayed
	m.queueAck(wire.AckUnlimited, r.expected-1)
	if may && r.sendsRequests && m.state == verbs.StateRTS && mayDelayAck(h) {
		m.delayAck(now, since)
	}
}

// fits looks at a packet's place in its message, and at its size (specification,
// volume 1, 9.7.4.1.2).
func (m *machine) fitsMessage(kind messageKind, h *wire.Header, payload []byte) bool {
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

// takeReceive takes the oldest receive for a message; where there is none the
// requester is asked to wait.
func (m *machine) consumeRecv() bool {
	r := &m.resp
	if r.consumed == r.posted {
		r.nakSent = true // what follows is dropped
		m.counters.rnr.Add(1)
		m.queueAck(wire.RNR(r.minRNR), r.expected)
		return false
	}
	r.consumed++
	return true
}

// received ends the receive that was taken last.
func (m *machine) completeRecv(wc verbs.WC, solicited bool) {
	wc.ID = m.resp.recvs.at(m.resp.consumed - 1).id
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

// reset forgets everything but the queue's size.
func (r *responder) reset() {
	*r = responder{limit: r.limit, recvs: r.recvs}
}
