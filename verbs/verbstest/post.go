package verbstest

import (
	"errors"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// PostSend implements verbs.QP.
func (q *qp) PostSend(wrs []verbs.SendWR) (int, error) {
	f := q.nic.f
	f.enter()
	defer f.leave()
	if err := q.usableLocked("post send"); err != nil {
		return 0, err
	}
	number := q.machine.Posted()
	n, _, err := q.machine.PostSend(wrs)
	for i := range n {
		q.addContent(number+uint64(i), &wrs[i])
	}
	if n > 0 {
		q.transmit()
	}
	if f.hasBug(overcountsPosted) && errors.Is(err, verbs.ErrQueueFull) {
		n++
	}
	return n, err
}

// addContent numbers the segments of a work request that was posted.
func (q *qp) addContent(number uint64, wr *verbs.SendWR) {
	w, c := q.machine.Work(number), q.contentOf(number)
	c.mem = c.mem[:0]
	if w.IsInline {
		c.mem = append(c.mem, w.Inline)
	}
	c.first = q.segPosted
	q.segPosted += max(1, (w.Length+segmentSize-1)/segmentSize)
	c.end = q.segPosted
	q.misread(w, c, wr)
	q.count(w)
}

// contentOf returns the segments of a work request that is outstanding.
func (q *qp) contentOf(number uint64) *segments { return &q.content[number%uint64(len(q.content))] }

func (q *qp) count(w *rc.SendWork) {
	sent := &q.nic.host.sent
	switch w.WR.Op {
	case verbs.OpSend, verbs.OpSendImm:
		sent.Sends++
		sent.Bytes += w.Length
	case verbs.OpWrite:
		sent.Writes++
		sent.Bytes += w.Length
	case verbs.OpWriteImm:
		sent.WriteImms++
		sent.Bytes += w.Length
	case verbs.OpRead:
		sent.Reads++
	default:
		sent.Atomics++
	}
}

// PostRecv implements verbs.QP.
func (q *qp) PostRecv(wrs []verbs.RecvWR) (int, error) {
	f := q.nic.f
	f.enter()
	defer f.leave()
	if err := q.usableLocked("post receive"); err != nil {
		return 0, err
	}
	n, err := q.machine.PostRecv(wrs)
	q.noteLengths(wrs[:n])
	return n, err
}

// PostSendAndPoll implements verbs.QP.
func (q *qp) PostSendAndPoll(wrs []verbs.SendWR, c verbs.CQ, wcs []verbs.WC) (posted, polled int, err error) {
	return rc.PostSendAndPoll(q, wrs, c, wcs)
}
