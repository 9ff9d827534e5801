package tcp

import (
	"encoding/binary"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// responder is what a stream adds to the half of a queue pair that executes the requests of the peer.
type responder struct {
	expected uint64 // number of the request to execute, or under way
	started  bool   // a request had that number
	minRNR   uint8

	wantAck   bool          // by the message under way
	reported  time.Duration // when the requester was last told that a long message comes in
	operation rc.Request    // the atomic whose operands are on their way

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

// postRecv posts receives.
func (m *machine) postRecv(wrs []verbs.RecvWR) (int, error) {
	n, err := m.PostRecv(wrs)
	if n > 0 && m.resp.dropping {
		m.resp.readyDue = true // after RNR, if that is still due: the requester has to know that it sends again
	}
	return n, err
}

// begin takes the first frame of a request.
func (m *machine) begin(h *frame.Header) (place, error) {
	r := &m.resp
	if (r.dropping || !r.started) && h.Number != r.expected { // before the first one: the PSNs differ
		return place{}, nil
	}
	if h.Number != r.expected || m.Message().Active {
		return place{}, protocolError(h, "comes where number %d is expected", r.expected)
	}
	r.started = true
	q := rc.Request{
		Op: verbs.Opcode(h.Kind - frame.Send), Total: h.Total, Addr: h.Addr, RKey: verbs.RKey(h.RKey), Imm: h.Imm,
		Solicited: h.Flags&frame.Solicited != 0,
	}
	status, ready := m.Begin(&q, r.numResponses)
	if !ready {
		r.dropping, r.rnrDue, r.readyDue = true, true, false
		return place{}, nil
	}
	r.dropping, r.readyDue = false, false
	switch {
	case status != verbs.StatusOK:
		m.refuse(status)
	case h.Kind == frame.Read:
		m.queue(response{number: r.expected, addr: h.Addr, rkey: q.RKey, length: h.Total})
	case h.Kind > frame.Read:
		r.operation = q
		return place{Place: rc.Place{Kind: placeOperands}}, nil
	default:
		r.wantAck = h.Flags&frame.WantAck != 0
		return place{Place: m.Place()}, nil
	}
	return place{}, nil
}

// receiveData takes a frame that continues a message.
func (m *machine) receiveData(h *frame.Header) (place, error) {
	r, g := &m.resp, m.Message()
	switch {
	case r.dropping || !r.started:
		return place{}, nil
	case !g.Active || h.Number != r.expected:
		return place{}, protocolError(h, "continues no message")
	case g.Got+uint64(h.Length) > g.Total:
		return place{}, protocolError(h, "has %d bytes after %d of %d", h.Length, g.Got, g.Total)
	}
	if m.at >= r.reported+reportTime {
		r.reported, r.ackDue = m.at, true
	}
	return place{Place: m.Place()}, nil
}

// contentPlaced counts content of the message, and completes it.
func (m *machine) contentPlaced(n uint64) {
	if m.Message().Active && m.Placed(n) {
		m.resp.expected++
		m.resp.ackDue = m.resp.ackDue || m.resp.wantAck
	}
}

// executeAtomic executes an atomic whose operands have come. The caller is in an access to the
// memory.
func (m *machine) executeAtomic(operands []byte) {
	r := &m.resp
	a, b := binary.LittleEndian.Uint64(operands), binary.LittleEndian.Uint64(operands[8:])
	if r.operation.Op == verbs.OpFetchAdd {
		a = b // the first operand is unused
	}
	old, ok := m.out.update(&r.operation, a, b)
	if !ok {
		m.refuse(verbs.StatusRemoteAccess)
		return
	}
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
func (m *machine) nextResponse(h *frame.Header, s *frameContent) bool {
	r := &m.resp
	if r.numResponses == 0 || !m.IsUp() {
		return false
	}
	a := &r.responses[0]
	n := min(m.segment(), a.length-a.sent)
	h.Kind, h.Number, h.Length = frame.Response, a.number, uint32(n) //nolint:gosec // at most maxSegment
	*s = frameContent{n: n, atomic: a.atomic, value: a.value, addr: a.addr + a.sent, rkey: a.rkey}
	if a.sent += n; a.sent == a.length {
		r.numResponses--
		copy(r.responses[:], r.responses[1:r.numResponses+1])
	}
	return true
}

// nextReply builds what has no content and goes before everything else.
func (m *machine) nextReply(h *frame.Header) bool {
	r := &m.resp
	if !m.IsUp() || r.refused {
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
		h.Kind, h.Number = frame.Probe, m.Next()
	default:
		return false
	}
	return true
}

// nextNAK builds the NAK of a refused request, after all responses before it, and breaks the
// queue pair.
func (m *machine) nextNAK(h *frame.Header) bool {
	r := &m.resp
	if !r.refused || !m.IsUp() {
		return false
	}
	h.Kind, h.Number, h.Imm = frame.NAK, r.expected, uint32(r.refusal)
	m.Break()
	return true
}

func (m *machine) receiveProbe() {
	r := &m.resp
	switch {
	case !r.started: // a request came before the Probe, with another PSN
	case !r.dropping:
		r.ackDue = true
	case !m.HasRecv():
		r.rnrDue = true
	default:
		r.readyDue = true
	}
}

// refuse answers the request under way with a NAK, which breaks the queue pair. Nothing of the peer is
// read any more.
func (m *machine) refuse(status verbs.Status) {
	r := &m.resp
	if r.refused {
		return
	}
	r.refused, r.refusal, r.refusedAt = true, status, m.at
	m.Refused(status)
}
