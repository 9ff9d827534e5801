package verbstest

import (
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// qp implements verbs.QP.
//
//	PostSend ─► sends (a ring) ─► transmit ─► wire ─► respond  (the peer)
//	                                 ▲                    │ RNR, gap: again
//	completion ◄── finish ◄── answered ◄── wire ◄─────────┘ ack, response
//
// requester.go has the upper half, responder.go the lower one. Everything but
// the two freed counters is guarded by the fabric's lock.
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
	established bool // EventCommEstablished was told

	// The send queue. Work requests are numbered from 0 on; the ring holds
	// those from freed to posted, in this order:
	// freed <= finished <= sending <= posted.
	sends     []sendWork
	posted    uint64
	finished  uint64        // the oldest that has not ended
	sending   uint64        // the next one to send, or a part of it
	sendFreed atomic.Uint64 // written by polls
	// The segments of these.
	segPosted, segAcked, segSent uint64
	reads                        uint8 // of the work requests from finished to sending, the reads and atomics

	// The requester's patience.
	retries, rnrRetries uint8
	wentBack            uint64        // 1 + the segment that an answer was missing for
	deadline            time.Duration // when to send again; 0 for never
	timerAt             time.Duration // when the agenda looks at deadline; 0 for not at all
	rnrUntil            time.Duration // when to try again after an RNR NAK; 0 when not waiting
	expect              time.Duration // when the last packet of the connection arrives that is known of
	travelling          *packet

	// The receive queue, likewise: freed <= taken <= received.
	recvs      []recvWork
	recvPosted uint64
	recvTaken  uint64
	recvFreed  atomic.Uint64

	// The responder.
	segExpected uint64
	receiving   bool // the receive before recvTaken has a part of its message
	gapTold     bool
	atomics     [maxResponderAtomics]atomicAnswer
	one         [1][]byte // scratch
}

// sendWork is a slot of the send queue.
type sendWork struct {
	wr     verbs.SendWR
	sgl    []verbs.SGE // the slot's own copy
	inline []byte      // likewise
	mem    [][]byte    // what they name, as of the last look
	length uint64
	seg    uint64 // its first segment
	segs   uint64 // 1 at least
}

func (w *sendWork) asks() bool { return w.wr.Op >= verbs.OpRead }

// recvWork is a slot of the receive queue.
type recvWork struct {
	id     verbs.WRID
	sgl    []verbs.SGE
	mem    [][]byte
	length uint64
}

// atomicAnswer is kept for a requester that asks again.
type atomicAnswer struct {
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
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "both completion queues must be of this device, as it was opened here")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	switch l := n.options.Limits; {
	case sendCQ.closed || recvCQ.closed:
		return nil, verbs.Errorf(op, n.name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > l.SendWR || c.MaxRecv < 0 || c.MaxRecv > l.RecvWR:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d sends and %d receives: at most %d and %d", c.MaxSend, c.MaxRecv, l.SendWR, l.RecvWR)
	case c.MaxSendSGE > l.SGEs || c.MaxRecvSGE > l.SGEs:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d and %d pieces a work request: at most %d", c.MaxSendSGE, c.MaxRecvSGE, l.SGEs)
	case c.MaxInline < 0 || c.MaxInline > n.options.MaxInline:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "%d bytes inline: at most %d", c.MaxInline, n.options.MaxInline)
	case p.dev.qps >= l.QPs:
		return nil, verbs.Errorf(op, n.name, verbs.ErrInvalid, "there are %d, which is the device's limit", p.dev.qps)
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

// freshQPN is a random one; 0 and 1 are the management queue pairs, and the last
// one is the multicast's.
func (n *NIC) freshQPN() verbs.QPN { return verbs.QPN(2 + n.f.random.Uint32N(0xfffffd)) }

// usableLocked is nil while calls make sense.
func (q *qp) usableLocked(op string) error {
	if q.closed && !q.pd.dev.killed.Load() {
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	}
	return q.pd.dev.usableLocked(op)
}

// tellLocked gives the queue pair's owner an event.
func (q *qp) tellLocked(kind verbs.EventKind) {
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

// step begins a change of state. The caller has entered.
func (q *qp) step(to verbs.QPState) error {
	op := "bring to " + to.String()
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(q.state, to); err != nil && (!q.nic.f.has(anyStep) || q.port == nil) {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	return nil
}

// ToInit implements verbs.QP.
func (q *qp) ToInit(a verbs.InitAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.step(verbs.StateInit); err != nil {
		return err
	}
	p := q.nic.portLocked(a.Port)
	if p == nil {
		return verbs.Errorf("bring to INIT", q.object(), verbs.ErrInvalid, "port %d: the ports are 1 to %d", a.Port, len(q.nic.ports))
	}
	if a.PKeyIndex != 0 {
		return verbs.Errorf("bring to INIT", q.object(), verbs.ErrInvalid, "partition index %d: there is only 0", a.PKeyIndex)
	}
	q.port, q.access, q.state = p, a.Access, verbs.StateInit
	return nil
}

// ToRTR implements verbs.QP.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.step(verbs.StateRTR); err != nil {
		return err
	}
	const op = "bring to RTR"
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	o := &q.nic.options
	switch {
	case a.MTU > o.MTU:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "path MTU %d: the port has %d active", a.MTU, o.MTU)
	case int(a.SGIDIndex) >= gidTableSize || q.port.gids[a.SGIDIndex].GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty", a.SGIDIndex)
	case o.Link == verbs.LinkEthernet && a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer has no GID, which Ethernet needs")
	case a.MaxDestReadAtomic > o.Limits.ReadAtomic:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d reads at once: at most %d", a.MaxDestReadAtomic, o.Limits.ReadAtomic)
	}
	q.rtr, q.peer, q.mtu, q.sgid, q.state = a, a.Peer, a.MTU, q.port.gids[a.SGIDIndex].GID, verbs.StateRTR
	return nil
}

// ToRTS implements verbs.QP.
func (q *qp) ToRTS(a verbs.RTSAttr) error {
	q.nic.f.mu.Lock()
	defer q.nic.f.mu.Unlock()
	if err := q.step(verbs.StateRTS); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: "bring to RTS", Object: q.object(), Err: err}
	}
	if l := q.nic.options.Limits.ReadAtomic; a.MaxReadAtomic > l {
		return verbs.Errorf("bring to RTS", q.object(), verbs.ErrInvalid, "%d reads at once: at most %d", a.MaxReadAtomic, l)
	}
	if q.state == verbs.StateRTS {
		a.PSN = q.rts.PSN // it is set once
	}
	q.rts, q.state = a, verbs.StateRTS
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	if err := q.step(verbs.StateErr); err != nil {
		return err
	}
	q.breakLocked()
	return nil
}

// ToReset implements verbs.QP.
func (q *qp) ToReset() error {
	q.nic.f.enter()
	defer q.nic.f.leave()
	if err := q.step(verbs.StateReset); err != nil {
		return err
	}
	q.captureLocked()
	q.sendCQ.purge(q)
	q.recvCQ.purge(q)
	q.state, q.established, q.receiving, q.gapTold = verbs.StateReset, false, false, false
	q.posted, q.finished, q.sending, q.segPosted, q.segAcked, q.segSent, q.reads = 0, 0, 0, 0, 0, 0, 0
	q.retries, q.rnrRetries, q.wentBack, q.deadline, q.rnrUntil, q.expect = 0, 0, 0, 0, 0, 0
	q.recvPosted, q.recvTaken, q.segExpected = 0, 0, 0
	q.sendFreed.Store(0)
	q.recvFreed.Store(0)
	clear(q.atomics[:])
	q.peer = verbs.Endpoint{}
	return nil
}

// breakLocked brings the queue pair to ERR and flushes everything posted, also
// what asked for no completion (rxe and NICs do; specification, volume 1,
// 10.3.1).
func (q *qp) breakLocked() {
	if q.state == verbs.StateErr || q.closed {
		return
	}
	q.captureLocked()
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
		if q.nic.f.has(flushesSignalled) && !q.work(q.finished).wr.Signaled {
			q.finished++
			continue
		}
		q.finishLocked(verbs.StatusFlushed)
	}
	q.sending, q.segAcked, q.segSent, q.reads = q.posted, q.segPosted, q.segPosted, 0
}

func (q *qp) flushRecvs() {
	if q.nic.f.has(keepsReceives) {
		return
	}
	for q.recvTaken < q.recvPosted {
		q.recvTaken++
		q.received(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}

// pushLocked puts a completion into a queue. One that overruns is lost, and
// breaks every queue pair on it (specification, volume 1, 11.6.3.1).
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
	q.captureLocked()
	q.closed = true
	if !q.nic.f.has(closedLives) {
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
