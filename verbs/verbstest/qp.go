package verbstest

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
)

// qp implements verbs.QP: the carrier of a machine over a lossy wire.
//
//	PostSend ─► machine ─► transmit ─► wire ─► handleRequest (of the peer) ─► its machine
//	                          ▲                    │
//	                          │ after a NAK        │ ACK, NAK, response
//	completion ◄── machine ◄─ handleReply ◄─ wire ◄┘
//
// requester.go has the sending side, responder.go the receiving side. The fabric's lock
// guards all fields.
type qp struct {
	nic            *NIC
	pd             *pd
	number         verbs.QPN
	sendCQ, recvCQ *cq
	closed         bool

	machine rc.Machine
	port    *port
	peer    verbs.Endpoint
	sgid    verbs.GID
	mtu     verbs.MTU
	rtr     verbs.RTRAttr
	rts     verbs.RTSAttr

	// Segments are numbered from 0 over all work requests, as packets are by PSN. content has those
	// of each work request, by its number modulo the size of the send queue.
	content                      []segments
	segPosted, segAcked, segSent uint64

	// Retries of the requester. Times are since the creation of the fabric.
	retries     uint8
	wentBack    uint64        // 1 + the segment from which a read or atomic was sent again, its response missing
	deadline    time.Duration // when to retransmit; 0: never
	timerAt     time.Duration // when the scheduled timer event checks deadline; 0: none scheduled
	rnrUntil    time.Duration // when to retry after an RNR NAK; 0: not waiting
	lastArrival time.Duration // when the last known packet of the connection arrives
	inFlight    *packet

	// State of the responder.
	segExpected uint64
	nakSent     bool
	atomics     [maxReadAtomic]atomicResponse
	one         [1][]byte // scratch
	mem         [][]byte  // scratch

	bugged
}

// segments is what the wire adds to a work request.
type segments struct {
	mem   [][]byte // its memory, set by resolve
	first uint64
	end   uint64 // one after its last segment; it has at least one
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
	q := &qp{nic: n, pd: p, sendCQ: sendCQ, recvCQ: recvCQ, content: make([]segments, c.MaxSend)}
	for q.number = n.freshQPN(); n.qps[q.number] != nil; {
		q.number = n.freshQPN()
	}
	q.machine.Init(q, rc.Config{
		QPConfig: c, Device: n.name, Number: q.number, ReadAtomic: n.options.Limits.ReadAtomic,
		MaxMessage: uint64(n.options.MaxMessage), NoAtomics: !n.options.Limits.Atomics,
	})
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
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrClosed, "the queue pair is closed")
	}
	return q.pd.dev.usableLocked(op)
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP.
func (q *qp) Endpoint() verbs.Endpoint { return verbs.Endpoint{QPN: q.number} }

// MaxInline implements verbs.QP.
func (q *qp) MaxInline() int { return q.machine.MaxInline() }

// State implements verbs.QP.
func (q *qp) State() (verbs.QPState, error) {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.usableLocked("query"); err != nil {
		return 0, err
	}
	return q.machine.State(), nil
}

// checked returns the error of a check of the machine, if the queue pair can be used.
func (q *qp) checked(op string, check error) error {
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if q.nic.f.hasBug(anyTransition) && q.port != nil {
		return nil
	}
	return check
}

// ToInit implements verbs.QP.
func (q *qp) ToInit(a verbs.InitAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	const op = "bring to INIT"
	if err := q.checked(op, q.machine.Step(op, verbs.StateInit)); err != nil {
		return err
	}
	p := q.nic.portLocked(a.Port)
	if p == nil {
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "port %d is out of range (1 to %d)", a.Port, len(q.nic.ports))
	}
	if a.PKeyIndex != 0 {
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "partition key index %d is out of range (only 0)", a.PKeyIndex)
	}
	q.port = p
	q.machine.EnterInit(q.accessOf(a.Access))
	return nil
}

// ToRTR implements verbs.QP.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	const op = "bring to RTR"
	if err := q.checked(op, q.machine.CheckRTR(&a)); err != nil {
		return err
	}
	o := &q.nic.options
	switch {
	case a.MTU > o.MTU:
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "path MTU %d exceeds the port's active MTU of %d", a.MTU, o.MTU)
	case int(a.SGIDIndex) >= gidTableSize || q.port.gids[a.SGIDIndex].GID.IsZero():
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the GID table has no entry %d", a.SGIDIndex)
	case o.Link == verbs.LinkEthernet && a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the peer's endpoint has no GID, which Ethernet needs")
	}
	q.rtr, q.peer, q.mtu, q.sgid = a, a.Peer, a.MTU, q.port.gids[a.SGIDIndex].GID
	q.machine.EnterRTR(&a)
	return nil
}

// ToRTS implements verbs.QP.
func (q *qp) ToRTS(a verbs.RTSAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.checked("bring to RTS", q.machine.CheckRTS(&a)); err != nil {
		return err
	}
	psn := q.rts.PSN
	if q.rts = a; !q.machine.EnterRTS(q.rtsOf(a), 0) {
		q.rts.PSN = psn // it is set once, on the move from RTR
	}
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	const op = "bring to ERR"
	if err := q.checked(op, q.machine.Step(op, verbs.StateErr)); err != nil {
		return err
	}
	q.breakLocked()
	return nil
}

// ToReset implements verbs.QP.
func (q *qp) ToReset() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	const op = "bring to RESET"
	if err := q.checked(op, q.machine.Step(op, verbs.StateReset)); err != nil {
		return err
	}
	q.detachInFlightLocked()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
	q.machine.Reset()
	q.segPosted, q.segAcked, q.segSent, q.segExpected, q.nakSent = 0, 0, 0, 0, false
	q.retries, q.wentBack, q.deadline, q.rnrUntil, q.lastArrival = 0, 0, 0, 0, 0
	clear(q.atomics[:])
	q.peer = verbs.Endpoint{}
	return nil
}

// breakLocked moves the queue pair to ERR, unless it is closed.
func (q *qp) breakLocked() {
	if !q.closed {
		q.machine.Break()
	}
}

// TakeBack implements rc.Owner: requests in flight keep a copy of their content.
func (q *qp) TakeBack() bool {
	q.detachInFlightLocked()
	q.deadline, q.rnrUntil = 0, 0
	return true
}

// Usable implements rc.Owner.
func (q *qp) Usable(sgl []verbs.SGE, write bool) bool {
	if q.nic.f.hasBug(anyLocalKey) {
		return true
	}
	for _, s := range sgl {
		if _, ok := q.nic.sliceLocked(q.pd, s, write); !ok && s.Length > 0 {
			return false
		}
	}
	return true
}

// Granted implements rc.Owner.
func (q *qp) Granted(addr, length uint64, key verbs.RKey, need verbs.Access) bool {
	_, ok := q.grantedLocked(addr, length, key, need)
	return ok
}

// Event implements rc.Owner.
func (q *qp) Event(kind verbs.EventKind) {
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// SendCompleted implements rc.Owner.
func (q *qp) SendCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64) {
	if wc.Status == verbs.StatusFlushed && q.nic.f.hasBug(flushesSignaledOnly) && !q.machine.Work(freedTo-1).WR.Signaled {
		return
	}
	q.pushLocked(q.sendCQ, cqe{wc: wc, freed: freed, upTo: freedTo}, false)
}

// RecvCompleted implements rc.Owner.
func (q *qp) RecvCompleted(wc verbs.WC, freed *atomic.Uint64, freedTo uint64, solicited bool) {
	if q.mute || wc.Status == verbs.StatusFlushed && q.nic.f.hasBug(receivesNotFlushed) {
		return
	}
	q.pushLocked(q.recvCQ, cqe{wc: wc, freed: freed, upTo: freedTo}, solicited)
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
