//go:build linux

package shm

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
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
	live     atomic.Pointer[link] // link; the holder of drive may go on using an earlier one
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
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if err := p.CheckQPLocked("create QP", &c, shared(c.SendCQ), shared(c.RecvCQ), maxInline); err != nil {
		return nil, err
	}
	sendCQ, recvCQ := c.SendCQ.(*cq), c.RecvCQ.(*cq) //nolint:errcheck // CheckQPLocked has looked at them
	q := &qp{pd: p, config: c, entrySize: entrySize(c.MaxSendSGE, c.MaxInline), sendCQ: sendCQ, recvCQ: recvCQ, ready: make(chan struct{})}
	q.own = endpointData{secret: newSecret(), socket: d.socket, inDir: d.hasPath}
	for {
		// 0 and 1 are the management queue pairs, 0xffffff is multicast.
		q.number = verbs.QPN(2 + soft.Random32()%0xfffffd)
		if d.qps[q.number] == nil {
			break
		}
	}
	d.qps[q.number] = q
	sendCQ.useLocked(q)
	recvCQ.useLocked(q)
	p.AddQPLocked(sendCQ.CQ, recvCQ.CQ)
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
	q.pushLocked(q.sendCQ, soft.Completion{WC: wc, Freed: &q.req.freed, FreedTo: q.req.completed, Owner: q}, false)
}

// completeRecvLocked ends the receive that a message consumed last.
func (q *qp) completeRecvLocked(wc verbs.WC, solicited bool) {
	wc.ID, wc.QPN = q.resp.recvs.At(q.resp.consumed-1).id, q.number
	q.pushLocked(q.recvCQ, soft.Completion{WC: wc, Freed: &q.freedRecvs, FreedTo: q.resp.consumed, Owner: q}, solicited)
}

func (q *qp) event(kind verbs.EventKind) {
	q.pd.dev.Event(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// pushLocked adds a completion to a completion queue. A full queue loses the completion, and its
// polls return an error.
func (q *qp) pushLocked(c *cq, e soft.Completion, solicited bool) {
	fired, space := c.Push(e, solicited, q.calling)
	if fired {
		q.fired = append(q.fired, c)
	}
	if !space {
		q.pd.dev.Event(verbs.AsyncEvent{Kind: verbs.EventCQError})
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
