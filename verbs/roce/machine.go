package roce

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// machine is a reliable-connected (RC) queue pair of the specification as a pure state
// machine, without sockets, goroutines and clocks. Inputs are packets, work requests
// and the time; outputs are packets, completions and a deadline.
//
//	postSend ──► nextPacket ──► packets ══════► handlePacket ──► completions
//	              ▲                              │
//	              └─ ACK, NAK, responses ◄═══════┘ nextPacket of the peer's machine
//
// The requester (requester.go, completion.go) sends requests and handles their
// responses. The responder (responder.go, execute.go, response.go, ack.go) executes the
// requests of the peer. A machine is not safe for concurrent use. Callers of nextPacket
// and handlePacket hold keys.mu shared. Times are durations since the device was
// opened.
type machine struct {
	completer completer
	keys      *soft.Keys
	domain    *soft.Domain
	counters  *counters
	path      *pathCounters // of the peer, or unconnected

	state       verbs.QPState
	access      verbs.Access // of the peer, through this queue pair
	peer        verbs.QPN
	mtu         uint64
	readCost    uint64 // weight of READs in the window, see flow.readCost
	established bool   // EventCommEstablished was reported

	req      requester
	resp     responder
	feedback feedback

	unconnected pathCounters
}

// completer receives the completions and events of a queue pair. The machine calls it
// from within its methods.
type completer interface {
	// sendCompleted reports the end of a work request of the send queue. When the
	// completion has been polled, the slots below freedTo are free.
	sendCompleted(wc verbs.WC, freedTo uint64)
	// recvCompleted does the same for the receive queue.
	recvCompleted(wc verbs.WC, freedTo uint64, solicited bool)
	// asyncEvent reports an asynchronous event of the queue pair.
	asyncEvent(verbs.EventKind)
}

// feedback is what a queue pair has learned about the network since the last
// takeFeedback. It is the input of the congestion window.
type feedback struct {
	acked     uint64 // acknowledged packets, in units of windowCost
	lost      bool   // packets were lost
	timeouts  uint8  // backoff of a retransmission timer that fired; 0 for none
	doubtful  bool   // lost or timeouts may only show that the round trip is long
	spurious  bool   // what was doubtful was no loss
	congested bool   // the peer reported congestion (CNP)
	rtt       time.Duration
	least     time.Duration // shortest round trip
}

// packet is a packet to be sent.
type packet struct {
	rocewire.Header
	Payload    [][]byte // memory of work requests, valid while keys.mu is held
	Len        uint64   // of the payload, in bytes
	Retransmit bool     // it was sent before
}

// size returns the length of the packet after the UDP header, in bytes.
func (p *packet) size() int {
	return p.Header.Len() + int(p.Len) + int(p.Pad) + rocewire.ICRCLen //nolint:gosec // a packet
}

// windowCost is what a number of packets with that much payload together (bytes) count
// in the congestion window.
func windowCost(packets, payload uint64) uint64 { return packets*overhead + payload }

// readCostUnit is the unit of flow.readCost.
const readCostUnit = 256

// defaultMTU is used before the path MTU is known: for work requests that are posted to
// a queue pair that failed before it was connected, and are flushed.
const defaultMTU = 1024

// init sets up a queue pair in RESET.
func (m *machine) init(out completer, d *soft.Domain, c *counters, sends, recvs int) {
	m.completer, m.keys, m.domain, m.counters, m.mtu, m.readCost = out, d.Keys, d, c, defaultMTU, readCostUnit
	m.path = &m.unconnected
	m.req.limit, m.resp.limit = sends, recvs
}

// toRTR and toRTS apply attributes. The caller has checked them, and the transition.
func (m *machine) toRTR(a verbs.RTRAttr) {
	m.peer, m.mtu = a.Peer.QPN, uint64(a.MTU)
	m.resp.connect(a)
	m.state = verbs.StateRTR
}

func (m *machine) toRTS(a verbs.RTSAttr) {
	if m.state != verbs.StateRTS {
		m.req.first = a.PSN // set once only
	}
	m.req.rnrRetry, m.req.maxOutstanding = a.RNRRetry, a.MaxReadAtomic
	m.req.configure(a)
	m.state = verbs.StateRTS
}

// reset returns to RESET. The sizes of the queues stay.
func (m *machine) reset() {
	m.req.reset()
	m.resp.reset()
	m.state, m.mtu, m.established, m.feedback = verbs.StateReset, defaultMTU, false, feedback{}
}

// enterError moves the queue pair to ERR and flushes all posted work requests, also
// unsignaled ones, as rxe and NICs do (specification, volume 1, 10.3.1). Responses that
// the responder has queued are still sent.
func (m *machine) enterError() {
	if m.state == verbs.StateErr {
		return
	}
	m.state = verbs.StateErr
	m.resp.ackDelayed = false
	m.flushSends()
	m.flushRecvs()
}

// handlePacket processes a packet. The caller has checked that it comes from the peer,
// that its ICRC is right, and that it is for this queue pair.
func (m *machine) handlePacket(now time.Duration, h *rocewire.Header, payload []byte) {
	if m.state != verbs.StateRTR && m.state != verbs.StateRTS {
		return
	}
	if m.state == verbs.StateRTR && !m.established {
		m.established = true
		m.completer.asyncEvent(verbs.EventCommEstablished)
	}
	switch {
	case h.Op == rocewire.CNP:
		m.feedback.congested = true
		m.counters.cnpReceived.Add(1)
	case h.Op.Request():
		m.handleRequest(now, h, payload)
	case m.state == verbs.StateRTS:
		m.handleResponse(now, h, payload)
	}
}

// nextPacket builds the next packet to send and reports whether there is one. space is
// what the congestion window leaves. Requests need space; responses need none, but READ
// responses stop while pauseReads is in effect.
func (m *machine) nextPacket(now time.Duration, space int64, p *packet) bool {
	p.Header = rocewire.Header{MigReq: true, PKey: rocewire.DefaultPKey, DestQP: m.peer} // always "migrated": there is no alternate path
	p.Payload, p.Len, p.Retransmit = p.Payload[:0], 0, false
	piggyback := space > 0 && m.state == verbs.StateRTS && m.req.canSend() && (!m.req.nextIsSinglePacket() || m.resp.piggybackDue(now))
	return m.nextResponse(piggyback, p) || space > 0 && m.nextRequest(now, uint64(space), p)
}

// hasResponse reports whether the responder has something to send, which needs no space
// in the window.
func (m *machine) hasResponse() bool {
	r := &m.resp
	return r.ackPending && !r.ackDelayed || r.numResponses > 0 || r.cnpPending
}

// pauseReads stops or resumes the responses to READs. A pause ends at until; a pause
// that is in effect keeps its end.
func (m *machine) pauseReads(waits bool, until time.Duration) {
	if waits && !m.resp.readsPaused {
		m.resp.readsPausedUntil = until
	}
	m.resp.readsPaused = waits
}

// takeReadCredit returns the window cost of the READs that were requested in parts
// since the last call (see readPacer).
func (m *machine) takeReadCredit() uint64 {
	n := m.resp.readCredit
	m.resp.readCredit = 0
	return n
}

// unresponsive reports whether the retransmission timer has fired since the peer last
// made progress.
func (m *machine) unresponsive() bool { return m.req.backoff > 0 }

// expire handles the timers that are due at now.
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

// deadline returns when to call expire; ok is false when no timer runs.
func (m *machine) deadline() (at time.Duration, ok bool) {
	at, ok = m.ackAndRetransmitDeadline()
	if r := &m.resp; r.readsPaused && r.numResponses > 0 && (!ok || r.readsPausedUntil < at) { // in every state: queued responses are sent after an error, too
		return r.readsPausedUntil, true
	}
	return at, ok
}

// ackAndRetransmitDeadline is deadline without paused READ responses.
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

// takeFeedback returns the feedback and resets it.
func (m *machine) takeFeedback() feedback {
	n := m.feedback
	n.rtt, n.least, n.spurious = m.req.srtt, m.req.least, m.req.spurious
	m.req.spurious = false
	m.feedback = feedback{}
	return n
}
