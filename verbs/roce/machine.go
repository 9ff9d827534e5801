package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// machine is a reliable-connected queue pair as the specification has it, without
// sockets, goroutines and clocks: packets and the time go in, packets, completions
// and a deadline come out.
//
//	post ──► next ──► packets ══════════► take ──► completions (outcome)
//	          ▲                            │
//	          └─ ACK, NAK, responses ◄═════┘ next of the peer's machine
//
// requester.go has the half that asks, responder.go the one that answers. The
// machine is not for concurrent use, and its caller holds the lock of keys shared
// in next and take. Time is a duration since some beginning.
type machine struct {
	completer completer
	keys      *keys
	domain    *domain
	counters  *counters

	state       verbs.QPState
	access      verbs.Access // that the peer has through this queue pair
	peer        verbs.QPN
	mtu         uint64
	readCost    uint64 // flow.readCost
	established bool   // EventCommEstablished was told

	req      requester
	resp     responder
	feedback feedback
}

// outcome takes what comes of work requests. It is called from within the
// machine's methods.
type completer interface {
	// sent ends a work request of the send queue, and frees the slots below upTo
	// when it has been polled.
	sendCompleted(wc verbs.WC, upTo uint64)
	// received does the same for the receive queue.
	recvCompleted(wc verbs.WC, upTo uint64, solicited bool)
	// tell is an asynchronous event of the queue pair.
	asyncEvent(verbs.EventKind)
}

// note is what the network was seen to do since it was last looked at, for the
// congestion window.
type feedback struct {
	acked     uint64 // what was acknowledged, as charge counts it
	lost      bool   // packets were missing
	timeouts  uint8  // the backoff of a retransmission timer that fired; 0 for none
	congested bool   // the peer, or who stands for it, saw congestion (CNP)
	rtt       time.Duration
}

// packet is one to be sent.
type packet struct {
	wire.Header
	Payload    [][]byte // memory of work requests: valid while the lock of keys is held
	Len        uint64   // of the payload
	Retransmit bool     // sent before
}

// size is its length behind the UDP header.
func (p *packet) size() int {
	return p.Header.Len() + int(p.Len) + int(p.Pad) + wire.ICRCLen //nolint:gosec // a packet
}

// charge is what n packets with that payload together count in the window.
func windowCost(packets, payload uint64) uint64 { return packets*overhead + payload }

// readCostOne is the unit of flow.readCost.
const readCostUnit = 256

// anyMTU stands for the path's while there is none: what is posted to a queue pair
// that broke before it was connected is counted by it, and flushed.
const defaultMTU = 1024

// init makes it a queue pair in RESET.
func (m *machine) init(out completer, d *domain, c *counters, sends, recvs int) {
	m.completer, m.keys, m.domain, m.counters, m.mtu, m.readCost = out, d.keys, d, c, defaultMTU, readCostUnit
	m.req.limit, m.resp.limit = sends, recvs
}

// toRTR and toRTS take attributes that were looked at; the steps were, too.
func (m *machine) toRTR(a verbs.RTRAttr) {
	m.peer, m.mtu = a.Peer.QPN, uint64(a.MTU)
	m.resp.connect(a)
	m.state = verbs.StateRTR
}

func (m *machine) toRTS(a verbs.RTSAttr) {
	if m.state != verbs.StateRTS {
		m.req.first = a.PSN // it is set once
	}
	m.req.rnrRetry, m.req.maxOutstanding = a.RNRRetry, a.MaxReadAtomic
	m.req.configure(a)
	m.state = verbs.StateRTS
}

// reset forgets everything.
func (m *machine) reset() {
	m.req.reset()
	m.resp.reset()
	m.state, m.mtu, m.established, m.feedback = verbs.StateReset, defaultMTU, false, feedback{}
}

// breaks brings the queue pair to ERR and flushes everything posted, also what
// asked for no completion (rxe and NICs do; specification, volume 1, 10.3.1).
// What the responder owes for requests before goes out all the same.
func (m *machine) enterError() {
	if m.state == verbs.StateErr {
		return
	}
	m.state = verbs.StateErr
	m.resp.ackDelayed = false
	m.flushSends()
	m.flushRecvs()
}

// take is a packet of the peer: looked at by who received it, as to whether it is
// from the peer, whole, and for this queue pair.
func (m *machine) handlePacket(now time.Duration, h *wire.Header, payload []byte) {
	if m.state != verbs.StateRTR && m.state != verbs.StateRTS {
		return
	}
	if m.state == verbs.StateRTR && !m.established {
		m.established = true
		m.completer.asyncEvent(verbs.EventCommEstablished)
	}
	switch {
	case h.Op == wire.CNP:
		m.feedback.congested = true
		m.counters.cnpTaken.Add(1)
	case h.Op.Request():
		m.handleRequest(now, h, payload)
	case m.state == verbs.StateRTS:
		m.handleResponse(now, h, payload)
	}
}

// next makes the next packet, and reports whether there is one. room is what the
// congestion window leaves; what the responder owes needs none, but for pause.
func (m *machine) nextPacket(now time.Duration, space int64, p *packet) bool {
	p.Header = wire.Header{MigReq: true, PKey: wire.DefaultPKey, DestQP: m.peer} // migrated: there is no other path
	p.Payload, p.Len, p.Retransmit = p.Payload[:0], 0, false
	piggyback := space > 0 && m.state == verbs.StateRTS && m.req.canSend() && (!m.req.nextIsSinglePacket() || m.resp.piggybackDue(now))
	return m.nextResponse(piggyback, p) || space > 0 && m.nextRequest(now, uint64(space), p)
}

// owes says whether there is something that needs no room in the window.
func (m *machine) hasResponse() bool { return m.resp.hasPending() }

// pause says whether answers to READs wait, until that time unless they wait already.
func (m *machine) pauseReads(waits bool, until time.Duration) {
	if waits && !m.resp.readsPaused {
		m.resp.readsPausedUntil = until
	}
	m.resp.readsPaused = waits
}

// takeAsked returns what was asked for in pieces since it was last called.
func (m *machine) takeReadCredit() uint64 {
	n := m.resp.readCredit
	m.resp.readCredit = 0
	return n
}

// silent says that nothing came back since the retransmission timer fired.
func (m *machine) unresponsive() bool { return m.req.backoff > 0 }

// expire does what is due at that time.
func (m *machine) expire(now time.Duration) {
	if m.resp.readsPaused && now >= m.resp.readsPausedUntil {
		m.resp.readsPaused = false
	}
	if m.state != verbs.StateRTS {
		return
	}
	if m.resp.ackDelayed && now >= m.resp.ackDeadline {
		m.resp.ackDelayed, m.resp.sendsRequests = false, false
	}
	m.expireRequester(now)
}

// deadline is when expire is to be called; false for not at all.
func (m *machine) deadline() (at time.Duration, ok bool) {
	at, ok = m.ackAndRetransmitDeadline()
	if r := &m.resp; r.readsPaused && r.numResponses > 0 && (!ok || r.readsPausedUntil < at) { // in any state: a break leaves what is owed
		return r.readsPausedUntil, true
	}
	return at, ok
}

// workDeadline is what deadline is without answers that pause.
func (m *machine) ackAndRetransmitDeadline() (at time.Duration, ok bool) {
	switch {
	case m.state != verbs.StateRTS:
		return 0, false
	case m.req.rnrWaiting:
		at, ok = m.req.rnrUntil, true
	default:
		at, ok = m.req.deadline()
	}
	if m.resp.ackDelayed && (!ok || m.resp.ackDeadline < at) {
		return m.resp.ackDeadline, true
	}
	return at, ok
}

// seen returns the note and begins a new one.
func (m *machine) takeFeedback() feedback {
	n := m.feedback
	n.rtt = m.req.srtt
	m.feedback = feedback{}
	return n
}
