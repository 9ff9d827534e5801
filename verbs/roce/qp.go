package roce

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// qp implements verbs.QP: a machine and the flow that carries its packets.
type qp struct {
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	sendCQ, recvCQ *cq
	freedRecvs     atomic.Uint64 // receive slots below are free; written by polls

	// flow carries the packets, from RTR on. Setting it takes the locks of the flow and
	// of the queue pair. The flow's lock guards the four fields after it.
	flow    atomic.Pointer[flow]
	queued  bool   // listed in flow.ready
	urgent  bool   // counted in flow.urgent
	counted uint64 // part of the machine's flight that is included in flow.flight
	deficit int    // bytes that it may send in its turn; negative after sending too much

	mu        sync.Mutex // guards the fields below
	machine   machine
	closed    bool
	endpoint  *endpoint // from INIT on
	receiving bool      // the endpoint's goroutine is processing a packet

	received bool // listed in endpoint.received
	sender   int  // index in endpoint.senders
	tos      uint8
	source   source

	timer   *time.Timer
	timerAt time.Duration
	armed   bool // timerAt is set
}

// source describes where the packets of the peer must come from.
type source struct {
	remote
	ports           []uint16  // named by the peer at bootstrap
	anyPort         bool      // the peer is a kernel or NIC, which names no ports
	identifications int       // number of IPv4 identifications to accept, see wire.Path.Check
	path            wire.Path // from the peer's port fromPort to this endpoint
	fromPort        uint16    // 0: path is not set
}

// allows reports whether packets from an address may belong to the peer.
func (s *source) allows(from netip.AddrPort) bool {
	return from.Addr().WithZone("") == s.at.Addr().WithZone("") && (s.anyPort || slices.Contains(s.ports, from.Port()))
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
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "both completion queues must belong to this opened device")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	_, open1 := d.cqs[sendCQ]
	_, open2 := d.cqs[recvCQ]
	switch {
	case !open1 || !open2:
		return nil, verbs.Errorf(op, d.name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > maxWR || c.MaxRecv < 0 || c.MaxRecv > maxWR:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d sends and %d receives: the limit is %d of each", c.MaxSend, c.MaxRecv, maxWR)
	case c.MaxSendSGE > maxSGEs || c.MaxRecvSGE > maxSGEs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d and %d scatter/gather elements: the limit is %d", c.MaxSendSGE, c.MaxRecvSGE, maxSGEs)
	case c.MaxInline < 0 || c.MaxInline > maxInline:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d bytes inline: the limit is %d", c.MaxInline, maxInline)
	case len(d.qps) >= maxQPs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "the device's limit of %d is reached", len(d.qps))
	}
	q := &qp{pd: p, config: c, sendCQ: sendCQ, recvCQ: recvCQ}
	q.machine.init(q, &p.domain, &d.counts, c.MaxSend, c.MaxRecv)
	d.provider.register(q)
	d.qps[q] = struct{}{}
	sendCQ.users.Add(1)
	recvCQ.users.Add(1)
	p.qps++
	return q, nil
}

// object names the queue pair in errors.
func (q *qp) object() string { return fmt.Sprintf("%s QP %v", q.pd.dev.name, q.number) }

// usableLocked returns an error if the queue pair or its device is closed.
func (q *qp) usableLocked(op string) error {
	switch {
	case q.closed:
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	case q.pd.dev.gone.Load():
		return q.pd.dev.goneError(op)
	}
	return nil
}

// sendCompleted, recvCompleted and asyncEvent implement completer. The caller holds
// q.mu.
func (q *qp) sendCompleted(wc verbs.WC, freedTo uint64) {
	wc.QPN = q.number
	q.push(q.sendCQ, cqe{wc: wc, freed: &q.machine.req.freed, freedTo: freedTo, qp: q}, false)
}

func (q *qp) recvCompleted(wc verbs.WC, freedTo uint64, solicited bool) {
	wc.QPN = q.number
	q.push(q.recvCQ, cqe{wc: wc, freed: &q.freedRecvs, freedTo: freedTo, qp: q}, solicited)
}

func (q *qp) asyncEvent(kind verbs.EventKind) {
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// push adds a completion to a completion queue. A full queue loses the completion, and
// its polls return an error.
func (q *qp) push(c *cq, e cqe, solicited bool) {
	fired, space := c.push(e, solicited, q.receiving)
	if fired {
		q.endpoint.fired = append(q.endpoint.fired, c)
	}
	if !space {
		q.pd.dev.async.push(verbs.AsyncEvent{Kind: verbs.EventCQError})
	}
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP. It includes the UDP ports from INIT on.
func (q *qp) Endpoint() verbs.Endpoint {
	q.mu.Lock()
	defer q.mu.Unlock()
	e := verbs.Endpoint{QPN: q.number}
	if s := q.endpoint; s != nil {
		e.UDP = verbs.UDPEndpoint{
			Port: s.receiver.Addr().Port(), Sources: []uint16{s.senders[q.sender].Addr().Port()},
			Buffer: uint64(s.receiver.Buffer()), //nolint:gosec // a size
		}
	}
	return e
}

// MaxInline implements verbs.QP.
func (q *qp) MaxInline() int { return q.config.MaxInline }

// armLocked sets the timer to the machine's deadline. It leaves a timer that fires
// earlier alone, since expire sets it again.
func (q *qp) armLocked() {
	at, ok := q.machine.deadline()
	if !ok || q.timer == nil || q.closed || q.armed && q.timerAt <= at {
		return
	}
	q.armed, q.timerAt = true, at
	q.timer.Reset(max(at-q.pd.dev.now(), 0))
}

func (q *qp) stopTimerLocked() {
	if q.timer != nil {
		q.timer.Stop()
	}
	q.armed = false
}

// expire is called by the timer.
func (q *qp) expire() {
	q.mu.Lock()
	q.armed = false
	now := q.pd.dev.now()
	if at, ok := q.machine.deadline(); ok && !q.closed && now >= at {
		q.machine.expire(now)
	}
	q.armLocked()
	q.mu.Unlock()
	q.kickWithFeedback()
}
