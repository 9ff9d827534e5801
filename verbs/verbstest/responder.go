package verbstest

import (
	"encoding/binary"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// handleRequest executes a request of the peer, in order (specification, volume 1, 9.7.5).
func (q *qp) handleRequest(p *packet) {
	switch {
	case p.seg > q.segExpected:
		if !q.nakSent {
			q.nakSent = true
			q.reply(p, nakSequence, q.segExpected)
		}
		return
	case p.seg < q.segExpected:
		q.repeatReply(p)
		return
	}
	q.nakSent = false
	q.truncate(p)
	if q.machine.Message().Active {
		q.takeContent(p)
		return
	}
	if p.op < verbs.OpRead && !q.mtuFits(p) {
		return
	}
	q.swallowReceive(p)
	r := rc.Request{Op: p.op, Total: p.total, Addr: p.addr, RKey: p.rkey, Imm: q.immOf(p), Solicited: p.solic}
	status, ready := q.machine.Begin(&r, 0)
	switch {
	case !ready:
		q.reply(p, nakRNR, p.seg)
	case status != verbs.StatusOK:
		q.reject(p, status)
	case p.op < verbs.OpRead:
		q.takeContent(p)
	case p.op == verbs.OpRead:
		if q.sendReadResponse(p) {
			q.segExpected += max(1, (p.n+segmentSize-1)/segmentSize)
		}
	default:
		q.takeAtomic(p)
	}
}

// repeatReply answers a duplicate of an executed request, whose reply was lost.
func (q *qp) repeatReply(p *packet) {
	switch p.op {
	case verbs.OpRead:
		q.sendReadResponse(p)
	case verbs.OpCompareSwap, verbs.OpFetchAdd:
		if a := &q.atomics[p.seg%maxReadAtomic]; a.valid && a.seg == p.seg {
			q.sendAtomicResponse(p, a.value)
		}
	default:
		q.reply(p, ack, q.segExpected)
	}
}

// reply sends an ACK or NAK for a request.
func (q *qp) reply(to *packet, kind packetKind, seg uint64) {
	p := q.nic.f.newPacketLocked()
	p.kind, p.psn, p.seg = kind, to.psn, seg
	p.wait = q.rtr.MinRNRTimer
	q.send(p)
}

// reject sends a NAK with an error status and breaks the queue pair (specification, volume
// 1, 9.9.3.1, classes A and C).
func (q *qp) reject(to *packet, status verbs.Status) {
	if !q.nic.f.hasBug(omitsAccessNAK) {
		p := q.nic.f.newPacketLocked()
		p.kind, p.psn, p.seg, p.status = nakError, to.psn, to.seg, status
		q.send(p)
	}
	q.breakLocked()
	q.machine.Refused(status)
}

// advance expects the next segment, and acknowledges at the end of a message and every
// ackEvery segments.
func (q *qp) advance(p *packet) {
	q.segExpected++
	if p.off+p.n == p.total || q.segExpected%ackEvery == 0 {
		q.reply(p, ack, q.segExpected)
	}
}

// mtuFits rejects a message whose packets do not match the path MTU of this side.
func (q *qp) mtuFits(p *packet) bool {
	if p.mtu == q.mtu || p.total <= uint64(min(p.mtu, q.mtu)) {
		return true
	}
	q.reject(p, verbs.StatusRemoteInvalidRequest)
	return false
}

// takeContent executes a segment of a send or write.
func (q *qp) takeContent(p *packet) {
	if p.n > 0 {
		place := q.machine.Place()
		mem, ok := q.find(&place)
		if !ok {
			q.reject(p, q.machine.Misplaced())
			return
		}
		if !q.storeLate(mem, p) {
			q.store(mem, p)
		}
		clear(mem)
	}
	q.machine.Placed(p.n)
	q.advance(p)
}

// find returns the memory of a whole message.
func (q *qp) find(p *rc.Place) (mem [][]byte, ok bool) {
	q.mem = q.mem[:0]
	if p.Kind == rc.PlaceRecv {
		q.mem, ok = q.gather(p.SGL, true, q.mem)
		return q.mem, ok
	}
	m, ok := q.grantedLocked(p.Addr, p.Total, p.RKey, verbs.AccessRemoteWrite)
	q.mem = append(q.mem, m)
	return q.mem, ok
}

// store copies the content of a segment to its place in the memory of the message.
func (q *qp) store(dst [][]byte, p *packet) {
	if p.data != nil {
		copyBuffers(dst, p.off, [][]byte{p.data}, 0, p.n)
		return
	}
	copyBuffers(dst, p.off, p.content.mem, p.off, p.n)
}

// sendReadResponse sends the current content that a read requests. It returns false if it
// rejected the read.
func (q *qp) sendReadResponse(p *packet) bool {
	var mem []byte
	if p.total > 0 {
		var ok bool
		if mem, ok = q.grantedLocked(p.addr, p.total, p.rkey, verbs.AccessRemoteRead); !ok {
			q.reject(p, verbs.StatusRemoteAccess)
			return false
		}
	}
	for seg, off := p.seg, p.off; ; seg++ {
		r := q.nic.f.newPacketLocked()
		r.kind, r.psn, r.seg = response, p.psn, seg
		r.n = min(segmentSize, p.total-off)
		if uint64(cap(r.buf)) < r.n {
			r.buf = make([]byte, r.n, segmentSize)
		}
		r.data = r.buf[:r.n]
		copy(r.data, mem[off:])
		off += r.n
		q.send(r)
		if off >= p.total {
			return true
		}
	}
}

// takeAtomic executes an atomic.
func (q *qp) takeAtomic(p *packet) {
	mem, ok := q.grantedLocked(p.addr, 8, p.rkey, verbs.AccessRemoteAtomic)
	if !ok {
		q.reject(p, verbs.StatusRemoteAccess)
		return
	}
	old := binary.NativeEndian.Uint64(mem)
	binary.NativeEndian.PutUint64(mem, rc.Atomic(p.op, old, p.compareAdd, p.swap))
	q.atomics[p.seg%maxReadAtomic] = atomicResponse{seg: p.seg, value: old, valid: true}
	q.segExpected++
	q.sendAtomicResponse(p, old)
}

func (q *qp) sendAtomicResponse(p *packet, old uint64) {
	r := q.nic.f.newPacketLocked()
	r.kind, r.psn, r.seg, r.n = response, p.psn, p.seg, 8
	if cap(r.buf) < 8 {
		r.buf = make([]byte, 8)
	}
	r.data = r.buf[:8]
	binary.NativeEndian.PutUint64(r.data, old)
	q.send(r)
}
