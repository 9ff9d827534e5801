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
	out    outcome
	keys   *keys
	domain *domain
	counts *counters

	state       verbs.QPState
	access      verbs.Access // that the peer has through this queue pair
	peer        verbs.QPN
	mtu         uint64
	readCost    uint64 // flow.readCost
	established bool   // EventCommEstablished was told

	req  requester
	resp responder
	note note
}

// outcome takes what comes of work requests. It is called from within the
// machine's methods.
type outcome interface {
	// sent ends a work request of the send queue, and frees the slots below upTo
	// when it has been polled.
	sent(wc verbs.WC, upTo uint64)
	// received does the same for the receive queue.
	received(wc verbs.WC, upTo uint64, solicited bool)
	// tell is an asynchronous event of the queue pair.
	tell(verbs.EventKind)
}

// note is what the network was seen to do since it was last looked at, for the
// congestion window.
type note struct {
	acked     uint64 // what was acknowledged, as charge counts it
	lost      bool   // packets were missing
	timeouts  uint8  // the backoff of a retransmission timer that fired; 0 for none
	congested bool   // the peer, or who stands for it, saw congestion (CNP)
	rtt       time.Duration
}

// packet is one to be sent.
type packet struct {
	wire.Header
	Payload [][]byte // memory of work requests: valid while the lock of keys is held
	Len     uint64   // of the payload
	Again   bool     // sent before
}

// size is its length behind the UDP header.
func (p *packet) size() int {
	return p.Header.Len() + int(p.Len) + int(p.Pad) + wire.ICRCLen //nolint:gosec // a packet
}

// charge is what n packets with that payload together count in the window.
func charge(packets, payload uint64) uint64 { return packets*overhead + payload }

// readCostOne is the unit of flow.readCost.
const readCostOne = 256

// anyMTU stands for the path's while there is none: what is posted to a queue pair
// that broke before it was connected is counted by it, and flushed.
const anyMTU = 1024

// init makes it a queue pair in RESET.
func (m *machine) init(out outcome, d *domain, c *counters, sends, recvs int) {
	m.out, m.keys, m.domain, m.counts, m.mtu, m.readCost = out, d.keys, d, c, anyMTU, readCostOne
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
	m.req.rnrRetry, m.req.maxAsks = a.RNRRetry, a.MaxReadAtomic
	m.req.configure(a)
	m.state = verbs.StateRTS
}

// reset forgets everything.
func (m *machine) reset() {
	m.req.reset()
	m.resp.reset()
	m.state, m.mtu, m.established, m.note = verbs.StateReset, anyMTU, false, note{}
}

// breaks brings the queue pair to ERR and flushes everything posted, also what
// asked for no completion (rxe and NICs do; specification, volume 1, 10.3.1).
// What the responder owes for requests before goes out all the same.
func (m *machine) breaks() {
	if m.state == verbs.StateErr {
		return
	}
	m.state = verbs.StateErr
	m.resp.held = false
	m.flushSends()
	m.flushReceives()
}

// take is a packet of the peer: looked at by who received it, as to whether it is
// from the peer, whole, and for this queue pair.
func (m *machine) take(now time.Duration, h *wire.Header, payload []byte) {
	if m.state != verbs.StateRTR && m.state != verbs.StateRTS {
		return
	}
	if m.state == verbs.StateRTR && !m.established {
		m.established = true
		m.out.tell(verbs.EventCommEstablished)
	}
	switch {
	case h.Op == wire.CNP:
		m.note.congested = true
		m.counts.cnpTaken.Add(1)
	case h.Op.Request():
		m.respond(now, h, payload)
	case m.state == verbs.StateRTS:
		m.answered(now, h, payload)
	}
}

// next makes the next packet, and reports whether there is one. room is what the
// congestion window leaves; what the responder owes needs none, but for pause.
func (m *machine) next(now time.Duration, room int64, p *packet) bool {
	p.Header = wire.Header{MigReq: true, PKey: wire.DefaultPKey, DestQP: m.peer} // migrated: there is no other path
	p.Payload, p.Len, p.Again = p.Payload[:0], 0, false
	along := room > 0 && m.state == verbs.StateRTS && m.req.wants() && (!m.req.isShort() || m.resp.ripe(now))
	return m.nextResponse(along, p) || room > 0 && m.nextRequest(now, uint64(room), p)
}

// owes says whether there is something that needs no room in the window.
func (m *machine) owes() bool { return m.resp.owes() }

// pause says whether answers to READs wait, until that time unless they wait already.
func (m *machine) pause(waits bool, until time.Duration) {
	if waits && !m.resp.paused {
		m.resp.pausedUntil = until
	}
	m.resp.paused = waits
}

// takeAsked returns what was asked for in pieces since it was last called.
func (m *machine) takeAsked() uint64 {
	n := m.resp.asked
	m.resp.asked = 0
	return n
}

// silent says that nothing came back since the retransmission timer fired.
func (m *machine) silent() bool { return m.req.backoff > 0 }

// expire does what is due at that time.
func (m *machine) expire(now time.Duration) {
	if m.resp.paused && now >= m.resp.pausedUntil {
		m.resp.paused = false
	}
	if m.state != verbs.StateRTS {
		return
	}
	if m.resp.held && now >= m.resp.heldUntil {
		m.resp.held, m.resp.talks = false, false
	}
	m.requesterExpires(now)
}

// deadline is when expire is to be called; false for not at all.
func (m *machine) deadline() (at time.Duration, ok bool) {
	at, ok = m.workDeadline()
	if r := &m.resp; r.paused && r.answering > 0 && (!ok || r.pausedUntil < at) { // in any state: a break leaves what is owed
		return r.pausedUntil, true
	}
	return at, ok
}

// workDeadline is what deadline is without answers that pause.
func (m *machine) workDeadline() (at time.Duration, ok bool) {
	switch {
	case m.state != verbs.StateRTS:
		return 0, false
	case m.req.resting:
		at, ok = m.req.restsUntil, true
	default:
		at, ok = m.req.deadline()
	}
	if m.resp.held && (!ok || m.resp.heldUntil < at) {
		return m.resp.heldUntil, true
	}
	return at, ok
}

// seen returns the note and begins a new one.
func (m *machine) seen() note {
	n := m.note
	n.rtt = m.req.srtt
	m.note = note{}
	return n
}
