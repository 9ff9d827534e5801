package roce

import (
	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
)

// response is a queued response to a READ, which may have been sent in part, or to an
// atomic.
type response struct {
	number    uint64 // first packet
	read      bool
	addr      uint64
	rkey      verbs.RKey
	length    uint64
	sent      uint64
	value     uint64 // result of an atomic
	msn       uint32
	duplicate bool // the request was a duplicate
}

type atomicResult struct {
	number uint64
	value  uint64
	valid  bool
}

// makeSpace reports whether a response to a new request can be queued. A requester that
// sends a new request has received all but the last responses, so repeated responses
// are dropped to make space.
func (r *responder) makeSpace() bool {
	for i := 0; i < r.numResponses && r.numResponses >= int(r.maxReadAtomic); {
		if !r.responses[i].duplicate {
			i++
			continue
		}
		r.numResponses--
		copy(r.responses[i:], r.responses[i+1:r.numResponses+1])
	}
	return r.numResponses < int(r.maxReadAtomic)
}

func (m *machine) queueResponse(a response) {
	r := &m.resp
	a.msn = r.completed
	if r.numResponses == 0 {
		r.readsPaused = false // the pause was for earlier responses
	}
	if n := m.packetsOf(a.length); a.read && n <= readPackets {
		r.readCredit += windowCost(n, a.length)
	}
	r.responses[r.numResponses] = a
	r.numResponses++
}

func (m *machine) packetsOf(length uint64) uint64 { return max(1, (length+m.mtu-1)/m.mtu) }

// supersedeAck drops a queued ACK: the response to a READ or atomic implies it.
func (m *machine) supersedeAck() {
	m.resp.lastWasData = false
	if m.resp.ackPending && m.resp.ack.IsAck() {
		m.resp.ackPending, m.resp.ackDelayed, m.resp.delayedAcks = false, false, 0
	}
}

// nextResponse builds the next packet of the responder. piggyback is set when a request
// follows, which a delayed ACK should travel with.
func (m *machine) nextResponse(piggyback bool, p *packet) bool {
	r := &m.resp
	switch {
	case r.cnpPending:
		r.cnpPending = false
		m.counters.cnpSent.Add(1)
		p.Op, p.BECN = rocewire.CNP, true
		return true
	case r.numResponses > 0:
		a := &r.responses[0]
		return (!a.read || !r.readsPaused) && m.nextReadAtomicResponse(a, p)
	case r.ackFirst:
		r.ackFirst = false
		p.Op, p.PSN, p.Syndrome, p.MSN = rocewire.Ack, psnOf(r.first, r.ackNumber-1), rocewire.AckUnlimited, r.completed
		return true
	case r.ackPending && (piggyback || !r.ackDelayed):
		r.ackPending, r.ackDelayed, r.delayedAcks = false, false, 0
		p.Op, p.PSN, p.Syndrome, p.MSN = rocewire.Ack, psnOf(r.first, r.ackNumber), r.ack, r.completed
		return true
	}
	return false
}

func (m *machine) nextReadAtomicResponse(a *response, p *packet) bool {
	r := &m.resp
	p.Syndrome, p.MSN = rocewire.AckUnlimited, a.msn
	if !a.read {
		p.Op, p.PSN, p.Orig = rocewire.AtomicAck, psnOf(r.first, a.number), a.value
		m.popResponse()
		return true
	}
	p.PSN = psnOf(r.first, a.number+a.sent/m.mtu)
	n := min(m.mtu, a.length-a.sent)
	if n > 0 {
		mem, ok := m.keys.GrantedLocked(m.domain, m, a.addr+a.sent, n, a.rkey, verbs.AccessRemoteRead)
		if !ok && a.duplicate { // the requester has usually received the first response
			m.popResponse()
			return m.nextResponse(true, p)
		}
		if !ok { // the region or window was closed after the request
			r.numResponses = 0
			m.queueAck(rocewire.NAKRemoteAccess, a.number+a.sent/m.mtu)
			m.enterError()
			m.completer.asyncEvent(verbs.EventQPAccess)
			return m.nextResponse(true, p)
		}
		p.Payload = append(p.Payload, mem)
	}
	p.Len = n
	p.Pad = uint8(-p.Len & 3)
	first, last := a.sent == 0, a.sent+p.Len == a.length
	a.sent += p.Len
	switch {
	case first && last:
		p.Op = rocewire.ReadResponseOnly
	case last:
		p.Op = rocewire.ReadResponseLast
	case first:
		p.Op = rocewire.ReadResponseFirst
	default:
		p.Op = rocewire.ReadResponseMiddle
	}
	if last {
		m.popResponse()
	}
	return true
}

// popResponse removes the oldest response.
func (m *machine) popResponse() {
	r := &m.resp
	r.numResponses--
	copy(r.responses[:], r.responses[1:r.numResponses+1])
}
