//go:build linux

package shm

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	idle := q.machine.Idle()
	n, _, err := q.machine.PostSend(wrs)
	var wake *connection
	if n > 0 {
		q.postedLocked(idle)
		wake = q.publishLocked()
	}
	q.mu.Unlock()
	wake.wake()
	return n, err
}

// postedLocked begins to wait for the peer, after the queue was idle.
func (q *qp) postedLocked(idle bool) {
	r := &q.req
	if idle {
		r.progress = time.Now()
	}
	switch {
	case q.refused:
		q.machine.Fail(verbs.StatusRetryExceeded)
	case r.timeout > 0 && q.machine.State() == verbs.StateRTS:
		q.armLocked(r.progress.Add(r.timeout))
	}
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	n, err := q.machine.PostRecv(wrs)
	l := q.connection
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

// PostSendAndPoll implements verbs.QP.
func (q *qp) PostSendAndPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	return rc.PostSendAndPoll(q, wrs, c, wcs)
}
