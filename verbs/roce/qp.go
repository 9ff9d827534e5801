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

// qp implements verbs.QP: a machine, and where its packets go.
type qp struct {
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	sendCQ, recvCQ *cq
	freedRecvs     atomic.Uint64 // receives that were polled; written by polls

	// flow is where packets go, from RTR on; it is set under both locks. What
	// follows is guarded by the flow's lock.
	flow    atomic.Pointer[flow]
	queued  bool   // it is in the flow's turn list
	urgent  bool   // it counts in the flow's
	counted uint64 // of the machine's flight, in the flow's
	deficit int    // what it may send in its turn; below 0 it has sent too much

	mu        sync.Mutex // guards what follows
	machine   machine
	closed    bool
	endpoint  *endpoint // from INIT on
	receiving bool      // a packet, on the goroutine of the station

	received bool // it is in its station's list
	sender   int  // of the station's
	tos      uint8
	source   source

	timer   *time.Timer
	timerAt time.Duration
	armed   bool // timerAt is set
}

// source is where the peer's packets have to come from.
type source struct {
	remote
	ports           []uint16  // that the peer named
	anyPort         bool      // it is a kernel or a NIC, which name none: they may come from any
	identifications int       // identifications that they may have
	path            wire.Path // from fromPort to here
	fromPort        uint16    // 0 for no path yet
}

// allows says whether a packet may come from there.
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
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "both completion queues must be of this device, as it was opened here")
	}
	c.MaxSendSGE, c.MaxRecvSGE = max(c.MaxSendSGE, 1), max(c.MaxRecvSGE, 1)
	_, open1 := d.cqs[sendCQ]
	_, open2 := d.cqs[recvCQ]
	switch {
	case !open1 || !open2:
		return nil, verbs.Errorf(op, d.name, verbs.ErrClosed, "a completion queue is closed")
	case c.MaxSend < 0 || c.MaxSend > maxWR || c.MaxRecv < 0 || c.MaxRecv > maxWR:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d sends and %d receives: at most %d of each", c.MaxSend, c.MaxRecv, maxWR)
	case c.MaxSendSGE > maxSGEs || c.MaxRecvSGE > maxSGEs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d and %d pieces a work request: at most %d", c.MaxSendSGE, c.MaxRecvSGE, maxSGEs)
	case c.MaxInline < 0 || c.MaxInline > maxInline:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "%d bytes inline: at most %d", c.MaxInline, maxInline)
	case len(d.qps) >= maxQPs:
		return nil, verbs.Errorf(op, d.name, verbs.ErrInvalid, "there are %d, which is the device's limit", len(d.qps))
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

// usableLocked is nil while calls make sense.
func (q *qp) usableLocked(op string) error {
	switch {
	case q.closed:
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	case q.pd.dev.gone.Load():
		return q.pd.dev.goneError(op)
	}
	return nil
}

// sent, received and tell implement outcome. The caller holds the lock.
func (q *qp) sendCompleted(wc verbs.WC, upTo uint64) {
	wc.QPN = q.number
	q.push(q.sendCQ, cqe{wc: wc, freed: &q.machine.req.freed, freedTo: upTo, qp: q}, false)
}

func (q *qp) recvCompleted(wc verbs.WC, upTo uint64, solicited bool) {
	wc.QPN = q.number
	q.push(q.recvCQ, cqe{wc: wc, freed: &q.freedRecvs, freedTo: upTo, qp: q}, solicited)
}

func (q *qp) asyncEvent(kind verbs.EventKind) {
	q.pd.dev.async.push(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// push puts a completion into a queue. One that overruns is lost; polls say so.
func (q *qp) push(c *cq, e cqe, solicited bool) {
	fired, room := c.push(e, solicited, q.receiving)
	if fired {
		q.endpoint.fired = append(q.endpoint.fired, c)
	}
	if !room {
		q.pd.dev.async.push(verbs.AsyncEvent{Kind: verbs.EventCQError})
	}
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP. From INIT on it has the sockets.
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

// armLocked sets the timer for the machine's deadline. It is set anew only when
// it would come too late: one that comes too early looks again.
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

// expire is the timer's.
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
