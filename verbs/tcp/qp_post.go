package tcp

import (
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	q.mu.Lock()
	n, bytes, err := q.machine.postSend(q.now(), wrs)
	c := q.conn.Load()
	if n > 0 {
		q.armLocked()
	}
	q.mu.Unlock()
	if n > 0 && c != nil {
		if bytes <= directBytes {
			c.kick()
		} else {
			c.wakeWriter()
		}
	}
	return n, err
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	q.mu.Lock()
	n, err := q.machine.postRecv(wrs)
	ready, c := q.machine.resp.readyDue, q.conn.Load()
	q.mu.Unlock()
	if ready && c != nil {
		c.kick()
	}
	return n, err
}

// PostSendAndPoll implements verbs.QP.
func (q *qp) PostSendAndPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	return rc.PostSendAndPoll(q, wrs, c, wcs)
}
