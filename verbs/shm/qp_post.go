//go:build linux

package shm

import (
	"github.com/tryst-rdma/tryst/verbs"
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	n, err := q.postSendLocked(wrs)
	var wake *link
	if n > 0 {
		wake = q.publishLocked()
	}
	q.mu.Unlock()
	wake.wake()
	return n, err
}

func (q *qp) postSendLocked(wrs []verbs.SendWR) (int, error) {
	const op = "post send"
	if err := q.usableLocked(op); err != nil {
		return 0, err
	}
	if s := q.state; s != verbs.StateRTS && s != verbs.StateErr {
		return 0, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in %v; it can send only in RTS", s)
	}
	for i := range wrs {
		if err := q.checkSend(&wrs[i]); err != nil {
			return i, err
		}
		if q.req.posted-q.req.freed.Load() >= uint64(q.config.MaxSend) { //nolint:gosec // not negative
			return i, verbs.Errorf(op, q.object(), verbs.ErrQueueFull, "all %d slots of the send queue are taken", q.config.MaxSend)
		}
		q.addSendLocked(&wrs[i])
	}
	return len(wrs), nil
}

// checkSend returns an error for a work request that is invalid in itself.
func (q *qp) checkSend(wr *verbs.SendWR) error {
	const op = "post send"
	switch {
	case wr.Op > verbs.OpFetchAdd:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "unknown operation %d", wr.Op)
	case wr.Inline != nil && wr.Op >= verbs.OpRead:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v cannot be inline", wr.Op)
	case len(wr.Inline) > q.config.MaxInline:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d bytes inline: the limit is %d", len(wr.Inline), q.config.MaxInline)
	case len(wr.SGL) > q.config.MaxSendSGE:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d scatter/gather elements: the limit is %d", len(wr.SGL), q.config.MaxSendSGE)
	case wr.Len() > maxMessage:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "a message of %d bytes: the limit is %d", wr.Len(), maxMessage)
	case wr.Op < verbs.OpCompareSwap:
		return nil
	case len(wr.SGL) != 1 || wr.SGL[0].Length != 8:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v needs one scatter/gather element of 8 bytes", wr.Op)
	case wr.RemoteAddr%8 != 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v needs an address that is a multiple of 8", wr.Op)
	}
	return nil
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	n, err := q.postRecvLocked(wrs)
	l := q.link
	stalled := n > 0 && q.resp.stalled && l != nil
	if stalled {
		q.resp.stalled = false
		q.resumeLocked(l) // the peer's retries end, also if the request is executed much later
	}
	q.mu.Unlock()
	if stalled {
		q.nudge(l)
	}
	return n, err
}

func (q *qp) postRecvLocked(wrs []verbs.RecvWR) (int, error) {
	const op = "post receive"
	if err := q.usableLocked(op); err != nil {
		return 0, err
	}
	if q.state == verbs.StateReset {
		return 0, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the queue pair is in RESET; receives can be posted from INIT on")
	}
	p := &q.resp
	for i := range wrs {
		if len(wrs[i].SGL) > q.config.MaxRecvSGE {
			return i, verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d scatter/gather elements: the limit is %d", len(wrs[i].SGL), q.config.MaxRecvSGE)
		}
		freed := q.freedRecvs.Load()
		if p.posted-freed >= uint64(q.config.MaxRecv) { //nolint:gosec // not negative
			return i, verbs.Errorf(op, q.object(), verbs.ErrQueueFull, "all %d slots of the receive queue are taken", q.config.MaxRecv)
		}
		p.recvs.Grow(freed, p.posted, q.config.MaxRecv)
		w := p.recvs.At(p.posted)
		w.id, w.length, w.sgl = wrs[i].ID, wrs[i].Len(), append(w.sgl[:0], wrs[i].SGL...)
		p.posted++
		if q.state == verbs.StateErr && !q.flush {
			q.flushLocked()
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
