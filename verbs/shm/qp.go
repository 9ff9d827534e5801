//go:build linux

package shm

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// qp implements verbs.QP. Its requester (requester.go) writes requests into its own ring and
// reads the responses in the ring of the peer; its responder (responder.go) executes the requests
// in the ring of the peer.
type qp struct {
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	entrySize      int
	sendCQ, recvCQ *cq
	freedRecvs     atomic.Uint64 // receive slots below are free; written by polls

	// drive is held while the rings are worked on, also while content is copied. So a Close that
	// has taken it knows that no slice is under way.
	drive    sync.Mutex
	stopping atomic.Int32 // somebody waits for drive to take the link away
	nudged   atomic.Bool  // look at the rings again, for a reason on this side
	runner   bool         // drive is held by the goroutine of run; guarded by drive
	seen     words        // of the last step; guarded by drive
	more     bool         // the last step may have left something; guarded by drive
	barrier  fence
	live     atomic.Pointer[link] // link; it stays usable for those who hold drive
	polls    atomic.Uint64        // counts polls of completion queues of this queue pair
	watched  atomic.Bool          // run relies on polls, and looks only now and then

	mu     sync.Mutex // guards the fields below
	state  verbs.QPState
	access verbs.Access // of the peer, through this queue pair
	closed bool

	own        endpointData
	ends       ends // from RTR on
	role       role
	peer       endpointData
	peerPSN    verbs.PSN
	reads      uint8         // READs and atomics that the peer may have outstanding
	attempt    uint64        // counts the connections of this queue pair
	ready      chan struct{} // closed when ends is known, or never will be
	isReady    bool
	stopDial   context.CancelFunc
	connection *time.Timer // ends the wait for the connection
	failed     error       // why there is no connection
	refused    bool        // and there never will be one, or the peer has ended it

	link    *link
	copying bool // content is being copied, outside of mu
	flush   bool // the queue pair broke meanwhile: flush when the copy has ended
	// breakStatus is how the oldest work request of the send queue ends when the queue pair breaks.
	breakStatus verbs.Status
	calling     bool // completions are handed to CallbackCQ.OnEvent
	fired       []*cq

	req         requester
	resp        responder
	established bool

	timer   *time.Timer
	armed   bool
	timerAt time.Time
}

// CreateQP implements verbs.PD.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	const op = "create QP"
	if err := p.usableLocked(op); err != nil {
		return nil, err
	}
	sendCQ, ok1 := c.SendCQ.(*cq)
	recvCQ, ok2 := c.RecvCQ.(*cq)
	if !ok1 || !ok2 || sendCQ.dev != d || recvCQ.dev != d {
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "both completion queues must belong to this opened device")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	_, open1 := d.cqs[sendCQ]
	_, open2 := d.cqs[recvCQ]
	switch {
	case !open1 || !open2:
		return nil, verbs.Errorf(op, name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > maxWR || c.MaxRecv < 0 || c.MaxRecv > maxWR:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%d sends and %d receives: the limit is %d of each", c.MaxSend, c.MaxRecv, maxWR)
	case c.MaxSendSGE > maxSGEs || c.MaxRecvSGE > maxSGEs:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%d and %d scatter/gather elements: the limit is %d", c.MaxSendSGE, c.MaxRecvSGE, maxSGEs)
	case c.MaxInline < 0 || c.MaxInline > maxInline:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "%d bytes inline: the limit is %d", c.MaxInline, maxInline)
	case len(d.qps) >= maxQPs:
		return nil, verbs.Errorf(op, name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.qps))
	}
	q := &qp{pd: p, config: c, entrySize: entrySize(c.MaxSendSGE, c.MaxInline), sendCQ: sendCQ, recvCQ: recvCQ, ready: make(chan struct{})}
	q.own = endpointData{secret: newSecret(), socket: d.socket, inDir: d.hasPath}
	for {
		// 0 and 1 are the management queue pairs, 0xffffff is multicast.
		q.number = verbs.QPN(2 + random32()%0xfffffd)
		if d.qps[q.number] == nil {
			break
		}
	}
	d.qps[q.number] = q
	sendCQ.use(q)
	recvCQ.use(q)
	p.qps++
	return q, nil
}

// object names the queue pair in errors.
func (q *qp) object() string { return fmt.Sprintf("%s QP %v", name, q.number) }

// usableLocked returns an error if the queue pair is closed.
func (q *qp) usableLocked(op string) error {
	if q.closed {
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	}
	return nil
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP. Its data changes with ToReset.
func (q *qp) Endpoint() verbs.Endpoint {
	q.mu.Lock()
	defer q.mu.Unlock()
	return verbs.Endpoint{QPN: q.number, Data: q.own.append(nil)}
}

// MaxInline implements verbs.QP.
func (q *qp) MaxInline() int { return q.config.MaxInline }

func (q *qp) completeSendLocked(w *sendWork, status verbs.Status) {
	q.req.completed++
	if !w.wr.Signaled && status == verbs.StatusOK {
		return
	}
	wc := verbs.WC{ID: w.wr.ID, Status: status, Op: completionOf(w.wr.Op), QPN: q.number}
	q.pushLocked(q.sendCQ, cqe{wc: wc, freed: &q.req.freed, freedTo: q.req.completed, qp: q}, false)
}

// completeRecvLocked ends the receive that a message consumed last.
func (q *qp) completeRecvLocked(wc verbs.WC, solicited bool) {
	wc.ID, wc.QPN = q.resp.recvs.at(q.resp.consumed-1).id, q.number
	q.pushLocked(q.recvCQ, cqe{wc: wc, freed: &q.freedRecvs, freedTo: q.resp.consumed, qp: q}, solicited)
}

func (q *qp) event(kind verbs.EventKind) {
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// pushLocked adds a completion to a completion queue. A full queue loses the completion, and its
// polls return an error.
func (q *qp) pushLocked(c *cq, e cqe, solicited bool) {
	fired, space := c.push(e, solicited, q.calling)
	if fired {
		q.fired = append(q.fired, c)
	}
	if !space {
		q.pd.dev.async.push(verbs.AsyncEvent{Kind: verbs.EventCQError})
	}
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

// ConnectionError implements verbs.ConnectionReporter.
func (q *qp) ConnectionError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}
