package verbstest

import (
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// transmit sends segments of the posted work requests as far as the window and the machine allow.
func (q *qp) transmit() {
	for q.rnrUntil == 0 && !q.closed && q.segSent-q.segAcked < windowSegments {
		w := q.machine.Sendable()
		if w == nil {
			break
		}
		status := q.machine.CheckLocal(w)
		if status == verbs.StatusOK && !q.resolve(q.machine.Next()) {
			status = verbs.StatusLocalProtection
		}
		if status != verbs.StatusOK {
			q.machine.FailNext(status)
			break
		}
		q.sendSegment(w)
	}
	q.setRetryTimer()
}

// resolve looks up the memory of a work request. It returns false if an SGE is invalid.
func (q *qp) resolve(number uint64) bool {
	w, c := q.machine.Work(number), q.contentOf(number)
	if len(w.SGL) == 0 || w.IsInline {
		return true
	}
	var ok bool
	c.mem, ok = q.gather(w.SGL, w.HasResponse(), c.mem[:0])
	return ok
}

// gather appends the memory of a list to mem. It returns false if an SGE is invalid.
func (q *qp) gather(sgl []verbs.SGE, write bool, mem [][]byte) ([][]byte, bool) {
	for _, s := range sgl {
		m, ok := q.nic.sliceLocked(q.pd, s, write)
		if !ok && s.Length > 0 {
			if !q.nic.f.hasBug(anyLocalKey) {
				return mem, false
			}
			m = make([]byte, s.Length)
		}
		mem = append(mem, m)
	}
	return mem, true
}

func (q *qp) sendSegment(w *rc.SendWork) {
	number := q.machine.Next()
	p, c := q.nic.f.newPacketLocked(), q.contentOf(number)
	p.kind, p.psn, p.seg, p.op, p.content, p.number = request, q.rts.PSN, q.segSent, w.WR.Op, c, number
	p.off = q.machine.Offset()
	p.total, p.n = w.Length, min(segmentSize, w.Length-p.off)
	p.addr, p.rkey, p.imm, p.solic = w.WR.RemoteAddr, w.WR.RKey, w.WR.Imm, w.WR.Solicited
	sent := p.n
	q.segSent++
	switch w.WR.Op {
	case verbs.OpRead: // one packet requests all segments
		sent = w.Length - p.off
		p.n = sent
		q.segSent = c.end
	case verbs.OpCompareSwap:
		p.compareAdd, p.swap, p.n = w.WR.Compare, w.WR.Swap, 0
	case verbs.OpFetchAdd:
		p.compareAdd, p.n = w.WR.Add, 0
	}
	q.machine.Sent(sent)
	q.send(p)
}

// setRetryTimer starts the retry timer if segments are unacknowledged and it is not running,
// and stops it if there are none.
func (q *qp) setRetryTimer() {
	if q.segSent == q.segAcked || q.rts.Timeout == 0 || q.rnrUntil != 0 || q.machine.State() != verbs.StateRTS {
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
	if q.rts.Retry != retryUnlimited && q.retries >= q.rts.Retry && !f.hasBug(unlimitedRetries) {
		q.machine.Fail(verbs.StatusRetryExceeded)
		return
	}
	q.retries++
	q.retransmitFrom(q.segAcked)
}

// retransmitFrom sends all segments from seg on again.
func (q *qp) retransmitFrom(seg uint64) {
	q.sendFrom(seg)
	q.deadline = 0
	q.transmit()
}

// sendFrom makes seg the next segment to send. It is not acknowledged.
func (q *qp) sendFrom(seg uint64) {
	q.segSent = seg
	number, offset := q.machine.Completed(), uint64(0)
	for ; number < q.machine.Posted(); number++ {
		if c := q.contentOf(number); seg < c.end {
			offset = (seg - c.first) * segmentSize
			break
		}
	}
	q.machine.SendFrom(number, offset)
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
	if p.seg > q.segPosted {
		return
	}
	missing := q.acknowledge(p.seg)
	switch {
	case missing || q.machine.State() != verbs.StateRTS:
		return
	case p.kind == nakError:
		if !q.machine.Idle() && q.segAcked == p.seg {
			q.machine.Fail(p.status)
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

// acknowledge completes the work requests whose segments lie before seg. A read or atomic
// completes only by its response. If a response is missing, acknowledge retransmits from
// there and returns true.
func (q *qp) acknowledge(seg uint64) (missing bool) {
	for q.segAcked < seg && !q.machine.Idle() {
		number := q.machine.Completed()
		if q.machine.Work(number).HasResponse() {
			if again := q.segAcked + 1; q.wentBack != again {
				q.wentBack = again
				q.retransmitFrom(q.segAcked)
			}
			return true
		}
		q.acknowledged(number, min(seg, q.contentOf(number).end))
	}
	q.skipAcknowledged()
	return false
}

// acknowledged notes that the segments of a work request before seg are acknowledged, which is
// progress: the retries begin anew.
func (q *qp) acknowledged(number, seg uint64) {
	q.segAcked = seg
	q.retries, q.deadline = 0, 0
	if seg == q.contentOf(number).end {
		number++
	}
	q.machine.Acknowledge(number)
}

// skipAcknowledged skips segments that are due for retransmission but were acknowledged
// meanwhile.
func (q *qp) skipAcknowledged() {
	if q.segSent < q.segAcked && q.machine.State() == verbs.StateRTS {
		q.sendFrom(q.segAcked)
	}
}

// handleRNR waits after an RNR NAK, or fails when the RNR retries are exhausted.
func (q *qp) handleRNR(p *packet) {
	if q.segAcked != p.seg || q.machine.Idle() || q.rnrUntil != 0 || !q.machine.NotReady() {
		return
	}
	f := q.nic.f
	delay, _ := rc.RNRDelay(uint32(p.wait))
	q.rnrUntil = f.now + delay
	f.schedule.add(timedEvent{at: q.rnrUntil, qp: q, rnr: true})
	q.retransmitFrom(p.seg)
}

// takeResponse stores the content of a response.
func (q *qp) takeResponse(p *packet) {
	number := q.machine.Completed()
	if q.machine.Idle() || !q.machine.Work(number).HasResponse() {
		return
	}
	if !q.resolve(number) {
		q.machine.Fail(verbs.StatusLocalProtection)
		return
	}
	c := q.contentOf(number)
	if len(p.data) > 0 {
		q.one[0] = p.data
		copyBuffers(c.mem, (p.seg-c.first)*segmentSize, q.one[:], 0, uint64(len(p.data)))
	}
	q.machine.Respond(number, uint64(len(p.data)))
	q.acknowledged(number, q.segAcked+1)
	q.skipAcknowledged()
}
