//go:build linux

package shm

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// qp implements verbs.QP. Its requester (requester.go) writes requests into its own ring and
// reads the responses in the ring of the peer; its responder (responder.go) executes the requests
// in the ring of the peer. What every carrier has in common is in rc.Machine.
type qp struct {
	pd             *pd
	number         verbs.QPN
	entrySize      int
	sendCQ, recvCQ *soft.DrivenCQ

	driver

	mu      sync.Mutex // guards the fields below
	machine rc.Machine
	soft.Completions
	req  requester
	resp responder
	connecting
	connection *connection
	copying    bool // content is being copied, outside of mu
	timer
}

// driver is who works on the rings of a queue pair.
type driver struct {
	// drive is held while the rings are worked on, also while content is copied. So a Close that
	// has taken it knows that no slice is under way.
	drive    sync.Mutex
	stopping atomic.Int32 // somebody waits for drive to take the connection away
	nudged   atomic.Bool  // look at the rings again, for a reason on this side
	runner   bool         // drive is held by the goroutine of run; guarded by drive
	seen     words        // of the last step; guarded by drive
	more     bool         // the last step may have left something; guarded by drive
	barrier  fence
	live     atomic.Pointer[connection] // connection; the holder of drive may go on using an earlier one
	pollers  atomic.Int32               // completion queues whose callers poll all the time
}

// connecting is the way of a queue pair to its connection. The queue pair's lock guards it.
type connecting struct {
	own      endpointData
	ends     ends // from RTR on
	role     role
	peer     endpointData
	attempt  uint64        // counts the connections of this queue pair
	ready    chan struct{} // closed when ends is known, or never will be
	isReady  bool
	stopDial context.CancelFunc
	patience *time.Timer // ends the wait for the connection
	failed   error       // why there is no connection
	refused  bool        // and there never will be one, or the peer has ended it
}

// timer calls expire of a queue pair, whose lock guards it.
type timer struct {
	clock   *time.Timer // nil before the first use
	armed   bool
	timerAt time.Time
}

// CreateQP implements verbs.PD.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	d := p.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	sendCQ, _ := c.SendCQ.(*soft.DrivenCQ)
	recvCQ, _ := c.RecvCQ.(*soft.DrivenCQ)
	if err := p.CheckQPLocked("create QP", &c, sendCQ.Shared(), recvCQ.Shared(), maxInline); err != nil {
		return nil, err
	}
	q := &qp{pd: p, entrySize: entrySize(c.MaxSendSGE, c.MaxInline), sendCQ: sendCQ, recvCQ: recvCQ}
	q.ready = make(chan struct{})
	q.own = endpointData{secret: newSecret(), socket: d.socket, inDir: d.hasPath}
	for {
		// 0 and 1 are the management queue pairs, 0xffffff is multicast.
		q.number = verbs.QPN(2 + soft.Random32()%0xfffffd)
		if d.qps[q.number] == nil {
			break
		}
	}
	d.qps[q.number] = q
	q.Init(&d.Device, q.number, q, sendCQ.CQ, recvCQ.CQ)
	q.machine.Init(q, rc.Config{
		QPConfig: c, Device: name, Number: q.number, OnlyGID: "the only entry is 0", ReadAtomic: maxReadAtomic, MaxPost: maxMessage,
	})
	sendCQ.Use(q)
	recvCQ.Use(q)
	p.AddQPLocked(sendCQ.CQ, recvCQ.CQ)
	return q, nil
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
func (q *qp) MaxInline() int { return q.machine.MaxInline() }

// TakeBack, Usable and Granted implement rc.Owner, with soft.Completions. The caller holds q.mu.

// TakeBack takes the memory back, and ends the attempt to connect. While content is being copied for
// the queue pair the work requests stay; they are flushed when the copy has ended.
func (q *qp) TakeBack() bool {
	q.takeBackLocked()
	q.stopConnectingLocked()
	return !q.copying
}

// Usable and Granted allow everything: each slice checks its memory when it is copied.
func (*qp) Usable([]verbs.SGE, bool) bool                          { return true }
func (*qp) Granted(_, _ uint64, _ verbs.RKey, _ verbs.Access) bool { return true }

// ConnectionError implements verbs.ConnectionReporter.
func (q *qp) ConnectionError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.failed
}
