package verbstest

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// transmit sends segments of the posted work requests as far as the window, fences and the
// limit of reads allow.
func (q *qp) transmit() {
	for q.state == verbs.StateRTS && q.rnrUntil == 0 && q.sending < q.posted && !q.closed {
		w := q.work(q.sending)
		if q.segSent-q.segAcked >= windowSegments || w.wr.Fence && q.reads > 0 && !q.nic.f.hasBug(ignoresFence) {
			break
		}
		if status := q.checkLocal(w); status != verbs.StatusOK {
			// The request fails after those before it have completed.
			if q.finished == q.sending {
				q.failLocked(status)
			}
			break
		}
		if w.hasResponse() {
			if q.reads >= q.rts.MaxReadAtomic {
				break
			}
			q.reads++
		}
		q.sendSegment(w)
	}
	q.setRetryTimer()
}

// checkLocal checks a work request against the local limits and memory.
func (q *qp) checkLocal(w *sendWork) verbs.Status {
	if w.length > uint64(q.nic.options.MaxMessage) {
		return verbs.StatusLocalLength
	}
	if w.hasResponse() && q.rts.MaxReadAtomic == 0 {
		return verbs.StatusLocalQPOperation
	}
	if !q.resolve(w) {
		return verbs.StatusLocalProtection
	}
	return verbs.StatusOK
}

// resolve looks up the memory of a work request. It returns false if an SGE is invalid.
func (q *qp) resolve(w *sendWork) bool {
	if len(w.sgl) == 0 {
		return true // inline or empty
	}
	w.mem = w.mem[:0]
	for _, s := range w.sgl {
		m, ok := q.nic.sliceLocked(q.pd, s, w.hasResponse())
		if !ok && s.Length > 0 {
			if !q.nic.f.hasBug(anyLocalKey) {
				return false
			}
			m = make([]byte, s.Length)
		}
		w.mem = append(w.mem, m)
	}
	return true
}

func (q *qp) sendSegment(w *sendWork) {
	p := q.nic.f.newPacketLocked()
	p.kind, p.psn, p.seg, p.op, p.work, p.number = request, q.rts.PSN, q.segSent, w.wr.Op, w, q.sending
	p.off = (q.segSent - w.seg) * segmentSize
	p.total, p.n = w.length, min(segmentSize, w.length-p.off)
	p.addr, p.rkey, p.imm, p.solic = w.wr.RemoteAddr, w.wr.RKey, w.wr.Imm, w.wr.Solicited
	switch w.wr.Op {
	case verbs.OpRead: // one packet requests all segments
		p.n = w.length - p.off
		q.segSent = w.seg + w.segs
	case verbs.OpCompareSwap:
		p.compareAdd, p.swap, p.n = w.wr.Compare, w.wr.Swap, 0
		q.segSent++
	case verbs.OpFetchAdd:
		p.compareAdd, p.n = w.wr.Add, 0
		q.segSent++
	default:
		q.segSent++
	}
	if q.segSent == w.seg+w.segs {
		q.sending++
	}
	q.send(p)
}

// setRetryTimer starts the retry timer if segments are unacknowledged and it is not running,
// and stops it if there are none.
func (q *qp) setRetryTimer() {
	if q.segSent == q.segAcked || q.rts.Timeout == 0 || q.rnrUntil != 0 || q.state != verbs.StateRTS {
		q.deadline = 0
		return
	}
	if q.deadline == 0 {
		q.deadline = max(q.nic.f.now, q.lastArrival) + verbs.TimeoutDuration(q.rts.Timeout)
	}
	if q.timerAt == 0 || q.deadline < q.timerAt {
		q.timerAt = q.deadline
		q.nic.f.schedule.add(timedEvent{at: q.timerAt, qp: q})
	}
}

// retryTimer handles the retry timer: it retransmits unacknowledged segments, or fails the
// oldest request when the retries are exhausted.
func (q *qp) retryTimer() {
	f := q.nic.f
	if f.now < q.timerAt {
		return // an event of a later deadline; an earlier one was scheduled
	}
	q.timerAt = 0
	if q.closed || q.deadline == 0 {
		return
	}
	if f.now < q.deadline {
		q.setRetryTimer()
		return
	}
	if q.lastArrival > f.now { // the reply is still in flight, on a slow wire
		q.deadline = 0
		q.setRetryTimer()
		return
	}
	if q.rts.Retry != retryUnlimited && q.retries >= q.rts.Retry {
		if !f.hasBug(unlimitedRetries) {
			q.failLocked(verbs.StatusRetryExceeded)
			return
		}
	}
	q.retries++
	q.retransmitFrom(q.segAcked)
}

// retransmitFrom sends all segments from seg on again.
func (q *qp) retransmitFrom(seg uint64) {
	q.segSent = seg
	q.reads = 0
	for q.sending = q.finished; q.sending < q.posted; q.sending++ {
		w := q.work(q.sending)
		if seg < w.seg+w.segs {
			break
		}
		if w.hasResponse() {
			q.reads++
		}
	}
	q.deadline = 0
	q.transmit()
}

// rnrTimer handles the end of the wait after an RNR NAK.
func (q *qp) rnrTimer() {
	if q.closed || q.rnrUntil == 0 || q.nic.f.now < q.rnrUntil {
		return
	}
	q.rnrUntil = 0
	q.transmit()
}

// handleReply handles an ACK, a NAK or a response of the responder.
func (q *qp) handleReply(p *packet) {
	before := q.segAcked
	if p.seg > q.segPosted {
		return
	}
	missing := q.acknowledge(p.seg)
	if q.segAcked != before {
		q.resetRetries()
	}
	switch {
	case missing || q.state != verbs.StateRTS:
		return
	case p.kind == nakError:
		if q.finished < q.posted && q.segAcked == p.seg {
			q.failLocked(p.status)
		}
		return
	case p.kind == nakSequence:
		if q.segAcked == p.seg && q.segSent > p.seg {
			q.retransmitFrom(p.seg)
		}
		return
	case p.kind == nakRNR:
		q.handleRNR(p)
		return
	case p.kind == response && q.segAcked == p.seg:
		q.takeResponse(p)
	}
	q.transmit()
}

// resetRetries restarts the retry counts and the timer, after progress.
func (q *qp) resetRetries() {
	q.retries, q.rnrRetries, q.deadline = 0, 0, 0
}

// acknowledge completes the work requests whose segments lie before seg. A read or atomic
// completes only by its response. If a response is missing, acknowledge retransmits from
// there and returns true.
func (q *qp) acknowledge(seg uint64) bool {
	for q.segAcked < seg && q.finished < q.posted {
		w := q.work(q.finished)
		if w.hasResponse() {
			if again := q.segAcked + 1; q.wentBack != again {
				q.wentBack = again
				q.retransmitFrom(q.segAcked)
			}
			return true
		}
		end := w.seg + w.segs
		q.segAcked = min(seg, end)
		if q.segAcked == end {
			q.finishLocked(verbs.StatusOK)
		}
	}
	q.skipFinished()
	return false
}

// skipFinished skips segments that are due for retransmission but were acknowledged
// meanwhile.
func (q *qp) skipFinished() {
	q.segSent = max(q.segSent, q.segAcked)
	q.sending = max(q.sending, q.finished)
}

// handleRNR waits after an RNR NAK, or fails when the RNR retries are exhausted.
func (q *qp) handleRNR(p *packet) {
	if q.segAcked != p.seg || q.finished == q.posted || q.rnrUntil != 0 {
		return
	}
	if q.rts.RNRRetry != rnrUnlimited && q.rnrRetries >= q.rts.RNRRetry && !q.nic.f.hasBug(unlimitedRNRRetries) {
		q.failLocked(verbs.StatusRNRRetryExceeded)
		return
	}
	q.rnrRetries++
	f := q.nic.f
	q.rnrUntil = f.now + rnrTime[p.wait%32]*rnrUnit
	f.schedule.add(timedEvent{at: q.rnrUntil, qp: q, rnr: true})
	q.retransmitFrom(p.seg)
}

// takeResponse stores the content of a response.
func (q *qp) takeResponse(p *packet) {
	if q.finished >= q.posted {
		return
	}
	w := q.work(q.finished)
	if !w.hasResponse() {
		return
	}
	if !q.resolve(w) {
		q.failLocked(verbs.StatusLocalProtection)
		return
	}
	if len(p.data) > 0 {
		q.one[0] = p.data
		copyPieces(w.mem, (p.seg-w.seg)*segmentSize, q.one[:], 0, uint64(len(p.data)))
	}
	q.segAcked++
	q.resetRetries()
	if q.segAcked == w.seg+w.segs {
		if q.finished < q.sending { // not one that was waiting for its retransmission
			q.reads--
		}
		q.finishLocked(verbs.StatusOK)
	}
	q.skipFinished()
}

// finishLocked completes the oldest work request.
func (q *qp) finishLocked(status verbs.Status) {
	w := q.work(q.finished)
	q.finished++
	if !w.wr.Signaled && status == verbs.StatusOK && !q.nic.f.hasBug(completesUnsignaled) {
		return
	}
	q.pushLocked(q.sendCQ, cqe{wc: verbs.WC{ID: w.wr.ID, Status: status, Op: completionOf(w.wr.Op)}, freed: &q.sendFreed, upTo: q.finished}, false)
}

// failLocked completes the oldest work request with an error and breaks the queue pair.
func (q *qp) failLocked(status verbs.Status) {
	q.detachInFlightLocked()
	q.finishLocked(status)
	q.breakLocked()
}

func completionOf(op verbs.Opcode) verbs.WCOp {
	switch op {
	case verbs.OpSend, verbs.OpSendImm:
		return verbs.WCSend
	case verbs.OpWrite, verbs.OpWriteImm:
		return verbs.WCWrite
	case verbs.OpRead:
		return verbs.WCRead
	}
	return verbs.WCAtomic
}
