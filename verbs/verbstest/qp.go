package verbstest

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// qp implements verbs.QP.
//
//	PostSend ─► sends (a ring) ─► transmit ─► wire ─► handleRequest (of the peer)
//	                                 ▲                    │
//	                                 │ after a NAK        │ ACK, NAK, response
//	completion ◄── finishLocked ◄── handleReply ◄── wire ◄┘
//
// requester.go has the sending side, responder.go the receiving side. The fabric's lock
// guards all fields except the two Freed counters.
type qp struct {
	nic            *NIC
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	sendCQ, recvCQ *cq
	closed         bool

	state       verbs.QPState
	port        *port
	access      verbs.Access
	peer        verbs.Endpoint
	sgid        verbs.GID
	mtu         verbs.MTU
	rtr         verbs.RTRAttr
	rts         verbs.RTSAttr
	established bool // EventCommEstablished was sent

	// The send queue. Work requests are numbered from 0. The ring holds those from
	// sendFreed to posted: sendFreed <= finished <= sending <= posted.
	sends     []sendWork
	posted    uint64
	finished  uint64        // the oldest one that has not completed
	sending   uint64        // the next one to send; a part of it may be sent
	sendFreed atomic.Uint64 // written by Poll
	// Segments are numbered from 0 over all work requests, as packets are by PSN.
	segPosted, segAcked, segSent uint64
	reads                        uint8 // outstanding reads and atomics: those from finished to sending

	// Retries of the requester. Times are since the creation of the fabric.
	retries, rnrRetries uint8
	wentBack            uint64        // 1 + the segment from which a read or atomic was sent again, its response missing
	deadline            time.Duration // when to retransmit; 0: never
	timerAt             time.Duration // when the scheduled timer event checks deadline; 0: none scheduled
	rnrUntil            time.Duration // when to retry after an RNR NAK; 0: not waiting
	lastArrival         time.Duration // when the last known packet of the connection arrives
	inFlight            *packet

	// The receive queue, likewise: recvFreed <= recvTaken <= recvPosted.
	recvs      []recvWork
	recvPosted uint64
	recvTaken  uint64
	recvFreed  atomic.Uint64

	// State of the responder.
	segExpected uint64
	receiving   bool // the receive recvTaken-1 has a part of its message
	nakSent     bool
	atomics     [maxReadAtomic]atomicResponse
	one         [1][]byte // scratch
}

// sendWork is a slot of the send queue.
type sendWork struct {
	wr     verbs.SendWR
	sgl    []verbs.SGE // copy, owned by the slot
	inline []byte      // likewise
	mem    [][]byte    // the memory of sgl or inline, set by resolve
	length uint64
	seg    uint64 // its first segment
	segs   uint64 // at least 1
}

// hasResponse reports whether the request completes by a response with content.
func (w *sendWork) hasResponse() bool { return w.wr.Op >= verbs.OpRead }

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	mem    [][]byte
	length uint64
}

// atomicResponse is kept for a request that is sent again.
type atomicResponse struct {
	seg   uint64
	value uint64
	valid bool
}

// CreateQP implements verbs.PD.
func (p *pd) CreateQP(c verbs.QPConfig) (verbs.QP, error) {
	n := p.dev.nic
	n.f.mu.Lock()
	defer n.f.mu.Unlock()
	const op = "create QP"
	if err := p.usableLocked(op); err != nil {
		return nil, err
	}
	sendCQ, ok1 := c.SendCQ.(*cq)
	recvCQ, ok2 := c.RecvCQ.(*cq)
	if !ok1 || !ok2 || sendCQ.dev != p.dev || recvCQ.dev != p.dev {
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "both completion queues must belong to this opening of the device")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	switch l := n.options.Limits; {
	case sendCQ.closed || recvCQ.closed:
		return nil, verbs.Errorf(op, n.name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > l.SendWR || c.MaxRecv < 0 || c.MaxRecv > l.RecvWR:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d sends and %d receives exceed the limits of %d and %d", c.MaxSend, c.MaxRecv, l.SendWR, l.RecvWR)
	case c.MaxSendSGE > l.SGEs || c.MaxRecvSGE > l.SGEs:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d and %d SGEs per work request exceed the limit of %d", c.MaxSendSGE, c.MaxRecvSGE, l.SGEs)
	case c.MaxInline < 0 || c.MaxInline > n.options.MaxInline:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d inline bytes exceed the limit of %d", c.MaxInline, n.options.MaxInline)
	case p.dev.qps >= l.QPs:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d are open, the limit of the device", p.dev.qps)
	}
	q := &qp{nic: n, pd: p, config: c, sendCQ: sendCQ, recvCQ: recvCQ, sends: make([]sendWork, c.MaxSend), recvs: make([]recvWork, c.MaxRecv)}
	for q.number = n.freshQPN(); n.qps[q.number] != nil; {
		q.number = n.freshQPN()
	}
	n.qps[q.number] = q
	sendCQ.users++
	recvCQ.users++
	p.qps++
	p.dev.qps++
	return q, nil
}

// freshQPN returns a random number. It leaves out 0 and 1, the management queue pairs, and
// 0xffffff, which is for multicast.
func (n *NIC) freshQPN() verbs.QPN { return verbs.QPN(2 + n.f.random.Uint32N(0xfffffd)) }

// usableLocked returns nil if the queue pair can be used, else the error of op.
func (q *qp) usableLocked(op string) error {
	if q.closed && !q.pd.dev.killed.Load() {
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	}
	return q.pd.dev.usableLocked(op)
}

// notifyLocked sends an event of the queue pair to its device.
func (q *qp) notifyLocked(kind verbs.EventKind) {
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP.
func (q *qp) Endpoint() verbs.Endpoint { return verbs.Endpoint{QPN: q.number} }

// MaxInline implements verbs.QP.
func (q *qp) MaxInline() int { return q.config.MaxInline }

// State implements verbs.QP.
func (q *qp) State() (verbs.QPState, error) {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.usableLocked("query"); err != nil {
		return 0, err
	}
	return q.state, nil
}

// transition checks that the queue pair can move to a state. The caller holds the lock.
func (q *qp) transition(to verbs.QPState) error {
	op := "move to " + to.String()
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(q.state, to); err != nil && (!q.nic.f.hasBug(anyTransition) || q.port == nil) {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	return nil
}

// ToInit implements verbs.QP.
func (q *qp) ToInit(a verbs.InitAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.transition(verbs.StateInit); err != nil {
		return err
	}
	p := q.nic.portLocked(a.Port)
	if p == nil {
		return verbs.Errorf("move to INIT", q.object(), verbs.ErrInvalid, "port %d is out of range (1 to %d)", a.Port, len(q.nic.ports))
	}
	if a.PKeyIndex != 0 {
		return verbs.Errorf("move to INIT", q.object(), verbs.ErrInvalid, "partition key index %d is out of range (only 0)", a.PKeyIndex)
	}
	q.port, q.access, q.state = p, a.Access, verbs.StateInit
	return nil
}

// ToRTR implements verbs.QP.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.transition(verbs.StateRTR); err != nil {
		return err
	}
	const op = "move to RTR"
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	o := &q.nic.options
	switch {
	case a.MTU > o.MTU:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "path MTU %d exceeds the port's active MTU of %d", a.MTU, o.MTU)
	case int(a.SGIDIndex) >= gidTableSize || q.port.gids[a.SGIDIndex].GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the GID table has no entry %d", a.SGIDIndex)
	case o.Link == verbs.LinkEthernet && a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer's endpoint has no GID, which Ethernet needs")
	case a.MaxDestReadAtomic > o.Limits.ReadAtomic:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d outstanding reads exceed the limit of %d", a.MaxDestReadAtomic, o.Limits.ReadAtomic)
	}
	q.rtr, q.peer, q.mtu, q.sgid, q.state = a, a.Peer, a.MTU, q.port.gids[a.SGIDIndex].GID, verbs.StateRTR
	return nil
}

// ToRTS implements verbs.QP.
func (q *qp) ToRTS(a verbs.RTSAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.transition(verbs.StateRTS); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: "move to RTS", Object: q.object(), Err: err}
	}
	if l := q.nic.options.Limits.ReadAtomic; a.MaxReadAtomic > l {
		return verbs.Errorf("move to RTS", q.object(), verbs.ErrInvalid, "%d outstanding reads exceed the limit of %d", a.MaxReadAtomic, l)
	}
	if q.state == verbs.StateRTS {
		a.PSN = q.rts.PSN // the PSN is set once, on the move from RTR
	}
	q.rts, q.state = a, verbs.StateRTS
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	if err := q.transition(verbs.StateErr); err != nil {
		return err
	}
	q.breakLocked()
	return nil
}

// ToReset implements verbs.QP.
func (q *qp) ToReset() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	if err := q.transition(verbs.StateReset); err != nil {
		return err
	}
	q.detachInFlightLocked()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
	q.state, q.established, q.receiving, q.nakSent = verbs.StateReset, false, false, false
	q.posted, q.finished, q.sending, q.segPosted, q.segAcked, q.segSent, q.reads = 0, 0, 0, 0, 0, 0, 0
	q.retries, q.rnrRetries, q.wentBack, q.deadline, q.rnrUntil, q.lastArrival = 0, 0, 0, 0, 0, 0
	q.recvPosted, q.recvTaken, q.segExpected = 0, 0, 0
	q.sendFreed.Store(0)
	q.recvFreed.Store(0)
	clear(q.atomics[:])
	q.peer = verbs.Endpoint{}
	return nil
}

// breakLocked moves the queue pair to ERR and flushes all outstanding work requests,
// unsignaled ones too, as rxe and NICs do (specification, volume 1, 10.3.1).
func (q *qp) breakLocked() {
	if q.state == verbs.StateErr || q.closed {
		return
	}
	q.detachInFlightLocked()
	q.state = verbs.StateErr
	q.deadline, q.rnrUntil = 0, 0
	q.flushSends()
	if q.receiving {
		q.receiving = false
		q.recvTaken--
	}
	q.flushRecvs()
}

func (q *qp) flushSends() {
	for q.finished < q.posted {
		if q.nic.f.hasBug(flushesSignaledOnly) && !q.work(q.finished).wr.Signaled {
			q.finished++
			continue
		}
		q.finishLocked(verbs.StatusFlushed)
	}
	q.sending, q.segAcked, q.segSent, q.reads = q.posted, q.segPosted, q.segPosted, 0
}

func (q *qp) flushRecvs() {
	if q.nic.f.hasBug(receivesNotFlushed) {
		return
	}
	for q.recvTaken < q.recvPosted {
		q.recvTaken++
		q.received(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}

// pushLocked adds a completion to a queue. If the queue overruns, the completion is lost and
// all queue pairs of the queue break (specification, volume 1, 11.6.3.1).
func (q *qp) pushLocked(c *cq, e cqe, solicited bool) {
	e.qp = q
	e.wc.QPN = q.number
	if c.push(e, solicited) {
		return
	}
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: verbs.EventCQError})
	for _, other := range q.nic.qps {
		if other.sendCQ == c || other.recvCQ == c {
			other.breakLocked()
		}
	}
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	if q.closed {
		return nil
	}
	q.detachInFlightLocked()
	q.closed = true
	if !q.nic.f.hasBug(respondsAfterClose) {
		delete(q.nic.qps, q.number)
	}
	for key, g := range q.nic.remote {
		if g.qp == q {
			delete(q.nic.remote, key)
		}
	}
	if !q.nic.f.options.StaleCompletions {
		q.sendCQ.purge(q)
		q.recvCQ.purge(q)
	}
	q.deadline, q.rnrUntil = 0, 0
	q.sendCQ.users--
	q.recvCQ.users--
	q.pd.qps--
	q.pd.dev.qps--
	return nil
}
