package verbstest

import (
	"encoding/binary"
	"math/bits"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// handleRequest executes a request of the peer, in order (specification, volume 1, 9.7.5).
func (q *qp) handleRequest(p *packet) {
	if q.state == verbs.StateRTR && !q.established {
		q.established = true
		q.notifyLocked(verbs.EventCommEstablished)
	}
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
	switch p.op {
	case verbs.OpSend, verbs.OpSendImm:
		q.takeSend(p)
	case verbs.OpWrite, verbs.OpWriteImm:
		q.takeWrite(p)
	case verbs.OpRead:
		if !q.checkAccess(p, verbs.AccessRemoteRead) || !q.sendReadResponse(p) {
			return
		}
		q.segExpected += max(1, (p.n+segmentSize-1)/segmentSize)
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
	if status == verbs.StatusRemoteAccess {
		q.notifyLocked(verbs.EventQPAccess)
	} else {
		q.notifyLocked(verbs.EventQPRequest)
	}
}

// failReceive completes the current receive with the status own, and rejects the request
// with the status theirs.
func (q *qp) failReceive(p *packet, own, theirs verbs.Status) {
	q.receiving = false
	q.received(verbs.WC{Status: own}, false)
	q.reject(p, theirs)
}

// checkAccess rejects a request that needs rights which the queue pair does not grant.
func (q *qp) checkAccess(p *packet, need verbs.Access) bool {
	if q.access&need == need || q.nic.f.hasBug(ignoresQPRights) {
		return true
	}
	q.reject(p, verbs.StatusRemoteInvalidRequest)
	return false
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

// takeReceive consumes the oldest posted receive. If there is none, it sends an RNR NAK and
// returns false.
func (q *qp) takeReceive(p *packet) bool {
	if q.recvTaken == q.recvPosted {
		q.reply(p, nakRNR, p.seg)
		return false
	}
	q.recvTaken++
	return true
}

// received completes the last consumed receive.
func (q *qp) received(wc verbs.WC, solicited bool) {
	wc.ID = q.recv(q.recvTaken - 1).id
	q.pushLocked(q.recvCQ, cqe{wc: wc, freed: &q.recvFreed, upTo: q.recvTaken}, solicited)
}

// takeSend executes a segment of a send.
func (q *qp) takeSend(p *packet) {
	if !q.mtuFits(p) {
		return
	}
	if !q.receiving {
		if !q.takeReceive(p) {
			return
		}
		q.receiving = true
	}
	r := q.recv(q.recvTaken - 1)
	if p.off+p.n > r.length && q.nic.f.hasBug(truncatesMessages) {
		p.n = r.length - p.off
		p.total = p.off + p.n
	}
	if p.off+p.n > r.length {
		q.failReceive(p, verbs.StatusLocalLength, verbs.StatusRemoteInvalidRequest)
		return
	}
	if p.n > 0 {
		r.mem = r.mem[:0]
		for _, s := range r.sgl {
			m, ok := q.nic.sliceLocked(q.pd, s, true)
			if !ok && s.Length > 0 {
				q.failReceive(p, verbs.StatusLocalProtection, verbs.StatusRemoteOperation)
				return
			}
			r.mem = append(r.mem, m)
		}
		q.store(r.mem, p.off, p)
	}
	if p.off+p.n == p.total {
		q.receiving = false
		wc := verbs.WC{Op: verbs.WCRecv, Len: uint32(p.total)}
		if p.op == verbs.OpSendImm {
			wc.HasImm, wc.Imm = true, q.immOf(p)
		}
		q.received(wc, p.solic)
	}
	q.advance(p)
}

// takeWrite executes a segment of a write.
func (q *qp) takeWrite(p *packet) {
	if !q.checkAccess(p, verbs.AccessRemoteWrite) || !q.mtuFits(p) {
		return
	}
	last := p.off+p.n == p.total
	if q.nic.f.hasBug(emptyTakesReceive) && p.total == 0 && p.op == verbs.OpWrite {
		q.takeReceive(p)
	}
	if last && p.op == verbs.OpWriteImm && !q.takeReceive(p) {
		return
	}
	if p.total > 0 { // an empty write needs no key: specification, volume 1, 9.7.5.2.4
		mem, ok := q.grantedLocked(p.addr, p.total, p.rkey, verbs.AccessRemoteWrite)
		if !ok {
			if last && p.op == verbs.OpWriteImm {
				q.recvTaken-- // reject flushes it
			}
			q.reject(p, verbs.StatusRemoteAccess)
			return
		}
		q.one[0] = mem
		if last && q.nic.f.hasBug(lateContent) {
			p.data = make([]byte, p.n)
			copyPieces([][]byte{p.data}, 0, p.work.mem, p.off, p.n)
			content := p.data
			time.AfterFunc(time.Millisecond, func() { copy(mem[p.total-uint64(len(content)):], content) })
		} else {
			q.store(q.one[:], p.off, p)
		}
		q.one[0] = nil
	}
	if last && p.op == verbs.OpWriteImm {
		q.received(verbs.WC{Op: verbs.WCRecvWrite, HasImm: true, Imm: q.immOf(p), Len: uint32(p.total)}, p.solic)
	}
	q.advance(p)
}

func (q *qp) immOf(p *packet) uint32 {
	if q.nic.f.hasBug(swapsImm) {
		return bits.ReverseBytes32(p.imm)
	}
	return p.imm
}

// store copies the content of a segment to off in dst.
func (q *qp) store(dst [][]byte, off uint64, p *packet) {
	if p.data != nil {
		copyPieces(dst, off, [][]byte{p.data}, 0, p.n)
		return
	}
	copyPieces(dst, off, p.work.mem, p.off, p.n)
}

// sendReadResponse sends the current content that a read requests. It returns false if it
// rejected the read.
func (q *qp) sendReadResponse(p *packet) bool {
	if q.rtr.MaxDestReadAtomic == 0 {
		q.reject(p, verbs.StatusRemoteInvalidRequest)
		return false
	}
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
	if !q.checkAccess(p, verbs.AccessRemoteAtomic) {
		return
	}
	if q.rtr.MaxDestReadAtomic == 0 {
		q.reject(p, verbs.StatusRemoteInvalidRequest)
		return
	}
	mem, ok := q.grantedLocked(p.addr, 8, p.rkey, verbs.AccessRemoteAtomic)
	if !ok {
		q.reject(p, verbs.StatusRemoteAccess)
		return
	}
	old := binary.NativeEndian.Uint64(mem)
	if p.op == verbs.OpFetchAdd {
		binary.NativeEndian.PutUint64(mem, old+p.compareAdd)
	} else if old == p.compareAdd {
		binary.NativeEndian.PutUint64(mem, p.swap)
	}
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
