package verbstest

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	f := q.nic.f
	f.enter()
	defer f.leave()
	n, err := q.postSendLocked(wrs)
	if n > 0 {
		if q.state == verbs.StateErr {
			q.flushSends()
		} else {
			q.transmit()
		}
	}
	return n, err
}

func (q *qp) postSendLocked(wrs []verbs.SendWR) (int, error) {
	const op = "post send"
	if err := q.usableLocked(op); err != nil {
		return 0, err
	}
	if q.state != verbs.StateRTS && q.state != verbs.StateErr {
		return 0, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in %v: sends can be posted in RTS", q.state)
	}
	for i := range wrs {
		if err := q.checkSend(&wrs[i]); err != nil {
			return i, err
		}
		if q.posted-q.sendFreed.Load() >= uint64(len(q.sends)) {
			if q.nic.f.hasBug(overcountsPosted) {
				i++
			}
			return i, verbs.Errorf(op, q.object(), verbs.ErrQueueFull, "all %d slots of the send queue are in use", len(q.sends))
		}
		q.enqueueSend(&wrs[i])
	}
	return len(wrs), nil
}

// checkSend returns the error of a malformed work request.
func (q *qp) checkSend(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.Op > verbs.OpFetchAdd:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "unknown operation %d", wr.Op)
	case wr.Inline != nil && wr.Op >= verbs.OpRead:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v cannot be inline", wr.Op)
	case len(wr.Inline) > q.config.MaxInline:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d inline bytes exceed the limit of %d", len(wr.Inline), q.config.MaxInline)
	case len(wr.SGL) > q.config.MaxSendSGE:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d SGEs exceed the limit of %d", len(wr.SGL), q.config.MaxSendSGE)
	}
	if wr.Op == verbs.OpCompareSwap || wr.Op == verbs.OpFetchAdd {
		switch {
		case !q.nic.options.Limits.Atomics:
			return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the device does not support atomics")
		case len(wr.SGL) != 1 || wr.SGL[0].Length != 8:
			return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v needs one SGE of 8 bytes", wr.Op)
		case wr.RemoteAddr%8 != 0:
			return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v needs a remote address aligned to 8", wr.Op)
		}
	}
	return nil
}

func (q *qp) enqueueSend(wr *verbs.SendWR) {
	w := q.work(q.posted)
	w.wr = *wr
	w.wr.SGL, w.wr.Inline = nil, nil
	w.sgl, w.inline, w.mem = append(w.sgl[:0], wr.SGL...), append(w.inline[:0], wr.Inline...), w.mem[:0]
	w.length = wr.Len()
	if wr.Inline != nil {
		w.sgl = w.sgl[:0]
		w.mem = append(w.mem, w.inline)
		if q.nic.f.hasBug(inlineLater) {
			w.mem[0] = wr.Inline
		}
	}
	w.seg = q.segPosted
	w.segs = max(1, (w.length+segmentSize-1)/segmentSize)
	q.segPosted += w.segs
	q.posted++
	q.count(w)
}

func (q *qp) count(w *sendWork) {
	sent := &q.nic.host.sent
	switch w.wr.Op {
	case verbs.OpSend, verbs.OpSendImm:
		sent.Sends++
		sent.Bytes += w.length
	case verbs.OpWrite:
		sent.Writes++
		sent.Bytes += w.length
	case verbs.OpWriteImm:
		sent.WriteImms++
		sent.Bytes += w.length
	case verbs.OpRead:
		sent.Reads++
	default:
		sent.Atomics++
	}
}

// work returns the slot of a send work request.
func (q *qp) work(number uint64) *sendWork { return &q.sends[number%uint64(len(q.sends))] }

// recv returns the slot of a receive work request.
func (q *qp) recv(number uint64) *recvWork { return &q.recvs[number%uint64(len(q.recvs))] }

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	f := q.nic.f
	f.enter()
	defer f.leave()
	const op = "post receive"
	if err := q.usableLocked(op); err != nil {
		return 0, err
	}
	if q.state == verbs.StateReset {
		return 0, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in RESET: receives can be posted in INIT and later states")
	}
	for i := range wrs {
		if len(wrs[i].SGL) > q.config.MaxRecvSGE {
			return i, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d SGEs exceed the limit of %d", len(wrs[i].SGL), q.config.MaxRecvSGE)
		}
		if q.recvPosted-q.recvFreed.Load() >= uint64(len(q.recvs)) {
			return i, verbs.Errorf(op, q.object(), verbs.ErrQueueFull, "all %d slots of the receive queue are in use", len(q.recvs))
		}
		r := q.recv(q.recvPosted)
		r.id, r.length = wrs[i].ID, wrs[i].Len()
		r.sgl = append(r.sgl[:0], wrs[i].SGL...)
		q.recvPosted++
		if q.state == verbs.StateErr {
			q.flushRecvs()
		}
	}
	return len(wrs), nil
}

// PostSendAndPoll implements verbs.QP.
func (q *qp) PostSendAndPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	posted, err = q.PostSend(wrs)
	polled, pollErr := c.Poll(wcs)
	if err == nil {
		err = pollErr
	}
	return posted, polled, err
}
