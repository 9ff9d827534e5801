package roce

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// requester is the half of a queue pair that sends requests. It numbers work requests
// and packets from 0 on:
//
//	freed <= completed <= sending <= posted                work requests
//	acked <= next <= highest <= postedPackets              packets
type requester struct {
	limit int
	sends soft.Ring[sendWork]

	posted    uint64
	completed uint64        // the oldest that is not completed
	sending   uint64        // the one that the next packet belongs to
	freed     atomic.Uint64 // slots below are free; written by polls

	first         verbs.PSN // PSN of packet 0
	postedPackets uint64    // packets of all posted work requests
	acked         uint64    // all packets below are acknowledged
	next          uint64    // the next packet to send
	highest       uint64    // all packets below have been sent at least once
	flight        uint64    // windowCost of the packets from acked to next

	// outstanding holds, oldest first, the end packet of each READ and atomic request
	// that was sent and has no complete response. A READ request that is repeated asks
	// for the same packets as before, since the peer knows only the requests that it
	// received.
	maxOutstanding uint8
	outstanding    [maxReadAtomic]uint64
	numOutstanding int
	toRepeat       int    // number of them that goBack left to be repeated
	repeatedAt     uint64 // 1 + the packet whose missing response goBack was called for

	retransmitTimer
	// suspected is set after a timeout until the peer acknowledges packets. If that takes about
	// a round trip, a packet was lost. If it takes less or more, the acknowledgement was late,
	// since one of the hosts is busy.
	suspected  bool
	rnrRetry   uint8
	rnrRetries uint8
	rnrWaiting bool // wait until rnrUntil for the peer to post a receive
	rnrUntil   time.Duration
}

// sendWork is a slot of the send queue.
type sendWork struct {
	wr      verbs.SendWR // SGL and Inline point into the slot
	sgl     []verbs.SGE
	inline  []byte
	length  uint64
	first   uint64 // number of the first packet
	packets uint64 // at least 1
}

func (w *sendWork) isReadOrAtomic() bool { return w.wr.Op >= verbs.OpRead }
func (w *sendWork) end() uint64          { return w.first + w.packets }

// full reports whether the send queue has no free slot.
func (r *requester) full() bool { return r.posted-r.freed.Load() >= uint64(r.limit) }

// postSend posts a work request. The caller has checked it, and that the queue is not
// full.
func (m *machine) postSend(wr *verbs.SendWR) {
	r := &m.req
	r.sends.Grow(r.freed.Load(), r.posted, r.limit)
	w := r.sends.At(r.posted)
	w.wr = *wr
	w.wr.SGL, w.wr.Inline = nil, nil
	w.sgl, w.inline = append(w.sgl[:0], wr.SGL...), append(w.inline[:0], wr.Inline...)
	w.length = wr.Len()
	if wr.Inline != nil {
		w.sgl = w.sgl[:0]
		w.wr.Inline = w.inline
	}
	w.first = r.postedPackets
	w.packets = 1
	if w.wr.Op != verbs.OpCompareSwap && w.wr.Op != verbs.OpFetchAdd {
		w.packets = max(1, (w.length+m.mtu-1)/m.mtu)
	}
	r.postedPackets += w.packets
	r.posted++
	m.resp.sendsRequests = true
	if m.state == verbs.StateErr {
		m.flushSends()
	}
}

// costOf returns the windowCost of a work request's packets from number from to number
// to. The costs of parts add up to the cost of the whole, in spite of rounding.
func (m *machine) costOf(w *sendWork, from, to uint64) uint64 {
	return m.costOfFirst(w, to-w.first) - m.costOfFirst(w, from-w.first)
}

// costOfFirst returns the windowCost of the first n packets of a work request.
func (m *machine) costOfFirst(w *sendWork, n uint64) uint64 {
	switch {
	case w.wr.Op >= verbs.OpCompareSwap:
		return windowCost(n, 8*n)
	case w.wr.Op == verbs.OpRead:
		return windowCost(n, min(n*m.mtu, w.length)) * m.readCost / readCostUnit
	}
	return windowCost(n, min(n*m.mtu, w.length))
}

// nextRequest builds the next packet of the send queue.
func (m *machine) nextRequest(now time.Duration, space uint64, p *packet) bool {
	r := &m.req
	if m.state != verbs.StateRTS || r.rnrWaiting || r.sending == r.posted || r.next-r.acked >= maxFlight {
		return false
	}
	w := r.sends.At(r.sending)
	if w.wr.Fence && r.numOutstanding > r.toRepeat && r.next == w.first {
		return false
	}
	if w.isReadOrAtomic() && r.toRepeat == 0 && r.numOutstanding >= int(r.maxOutstanding) && r.maxOutstanding > 0 {
		return false
	}
	p.PSN = psnOf(r.first, r.next)
	count, status := uint64(1), m.checkLocal(w)
	if status == verbs.StatusOK {
		switch w.wr.Op {
		case verbs.OpRead:
			count = m.readRequest(w, space, p)
		case verbs.OpCompareSwap, verbs.OpFetchAdd:
			m.atomicRequest(w, p)
		default:
			status = m.dataRequest(w, space, p)
		}
	}
	if status != verbs.StatusOK {
		// Fail only after all earlier work requests have completed.
		if r.completed == r.sending {
			m.failSend(status)
		}
		return false
	}
	if p.Retransmit = r.next < r.highest; p.Retransmit {
		m.counters.retransmitted.Add(1)
		m.path.resent.Add(1)
	}
	switch {
	case !w.isReadOrAtomic():
	case r.toRepeat > 0:
		r.toRepeat--
	default:
		r.outstanding[r.numOutstanding] = r.next + count
		r.numOutstanding++
	}
	r.flight += m.costOf(w, r.next, r.next+count)
	r.next += count
	r.onSend(now, r.next, p.Retransmit, mayDelayAck(&p.Header))
	r.highest = max(r.highest, r.next)
	if r.next == w.end() {
		r.sending++
	}
	return true
}

// checkLocal checks the local side of a work request, before its first packet is sent.
func (m *machine) checkLocal(w *sendWork) verbs.Status {
	switch {
	case w.length > maxMessage:
		return verbs.StatusLocalLength
	case w.isReadOrAtomic() && m.req.maxOutstanding == 0:
		return verbs.StatusLocalQPOperation
	case m.req.next == w.first && !m.keys.UsableLocked(m.domain, w.sgl, w.isReadOrAtomic()):
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// dataRequest builds a packet of a SEND or WRITE.
func (m *machine) dataRequest(w *sendWork, space uint64, p *packet) verbs.Status {
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
	// Request an ACK wherever the stream of packets may stop.
	p.AckReq = last || (k+1)%ackPackets == 0 || r.next-r.acked+1 >= maxFlight || space < windowCost(2, p.Len+m.mtu)
	if w.wr.Inline != nil {
		if p.Len > 0 {
			p.Payload = append(p.Payload, w.inline[off:off+p.Len])
		}
		return verbs.StatusOK
	}
	var ok bool
	if p.Payload, ok = m.keys.GatherLocked(m.domain, w.sgl, off, p.Len, false, p.Payload); !ok {
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// dataOpcode returns the opcode of a packet by its position in the message.
func dataOpcode(op verbs.Opcode, first, last bool) rocewire.Opcode {
	var o [5]rocewire.Opcode // first, middle, last, only; the last two with immediate data if the message has any
	switch op {
	case verbs.OpSend:
		o = [5]rocewire.Opcode{rocewire.SendFirst, rocewire.SendMiddle, rocewire.SendLast, rocewire.SendOnly}
	case verbs.OpSendImm:
		o = [5]rocewire.Opcode{rocewire.SendFirst, rocewire.SendMiddle, rocewire.SendLastImm, rocewire.SendOnlyImm}
	case verbs.OpWrite:
		o = [5]rocewire.Opcode{rocewire.WriteFirst, rocewire.WriteMiddle, rocewire.WriteLast, rocewire.WriteOnly}
	default:
		o = [5]rocewire.Opcode{rocewire.WriteFirst, rocewire.WriteMiddle, rocewire.WriteLastImm, rocewire.WriteOnlyImm}
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

// readRequest builds a request for a part of a READ, and returns the number of its
// response packets.
func (m *machine) readRequest(w *sendWork, space uint64, p *packet) uint64 {
	r := &m.req
	off := (r.next - w.first) * m.mtu
	count := min(w.end()-r.next, readPackets, max(1, space*readCostUnit/m.readCost/windowCost(1, m.mtu)))
	if r.toRepeat > 0 {
		count = r.outstanding[r.numOutstanding-r.toRepeat] - r.next
	}
	p.Op, p.AckReq = rocewire.ReadRequest, true
	p.Addr, p.RKey = w.wr.RemoteAddr+off, w.wr.RKey
	p.Length = uint32(min(count*m.mtu, w.length-off)) //nolint:gosec // at most maxMessage
	return count
}

func (m *machine) atomicRequest(w *sendWork, p *packet) {
	p.AckReq, p.Addr, p.RKey = true, w.wr.RemoteAddr, w.wr.RKey
	if w.wr.Op == verbs.OpFetchAdd {
		p.Op, p.Swap = rocewire.FetchAdd, w.wr.Add
		return
	}
	p.Op, p.Swap, p.Compare = rocewire.CompareSwap, w.wr.Swap, w.wr.Compare
}

// canSend reports whether there is a request to send, given enough space in the window.
func (r *requester) canSend() bool {
	return !r.rnrWaiting && r.sending < r.posted && r.next-r.acked < maxFlight
}

// nextIsSinglePacket reports whether the next request is a message of one packet. Call
// it only if canSend.
func (r *requester) nextIsSinglePacket() bool { return r.sends.At(r.sending).packets == 1 }

// unsentCost is an upper bound of the windowCost of all packets that are still to be
// sent.
func (m *machine) unsentCost() uint64 {
	n := m.req.postedPackets - m.req.next
	return windowCost(n, n*m.mtu)
}

// reset clears everything but the size of the queue.
func (r *requester) reset() {
	r.posted, r.completed, r.sending, r.postedPackets, r.acked, r.next, r.highest, r.flight = 0, 0, 0, 0, 0, 0, 0, 0
	r.freed.Store(0)
	r.numOutstanding, r.toRepeat, r.repeatedAt, r.rnrRetries, r.rnrWaiting = 0, 0, 0, 0, false
	r.retransmitTimer, r.suspected = retransmitTimer{}, false
}
