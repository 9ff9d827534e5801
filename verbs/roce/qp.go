package roce

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// qp implements verbs.QP: a machine and the flow that carries its packets.
type qp struct {
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	sendCQ, recvCQ *soft.CQ
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
	origin   origin

	timer   *time.Timer
	timerAt time.Duration
	armed   bool // timerAt is set
}

// origin describes where the packets of the peer must come from.
type origin struct {
	remote
	ports           []uint16      // named by the peer at bootstrap
	anyPort         bool          // the peer is a kernel or NIC, which names no ports
	identifications int           // number of IPv4 identifications to accept, see rocewire.Path.Check
	path            rocewire.Path // from the peer's port fromPort to this endpoint
	fromPort        uint16        // 0: path is not set
}

// allows reports whether packets from an address may belong to the peer.
func (s *origin) allows(from netip.AddrPort) bool {
	return from.Addr().WithZone("") == s.at.Addr().WithZone("") && (s.anyPort || slices.Contains(s.ports, from.Port()))
}

// object names the queue pair in errors.
func (q *qp) object() string { return fmt.Sprintf("%s QP %v", q.pd.dev.Name(), q.number) }

// usableLocked returns an error if the queue pair or its device is closed.
func (q *qp) usableLocked(op string) error {
	if q.closed {
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	}
	return q.pd.dev.Gone(op)
}

// sendCompleted, recvCompleted and asyncEvent implement completer. The caller holds
// q.mu.
func (q *qp) sendCompleted(wc verbs.WC, freedTo uint64) {
	wc.QPN = q.number
	q.push(q.sendCQ, soft.Completion{WC: wc, Freed: &q.machine.req.freed, FreedTo: freedTo, Owner: q}, false)
}

func (q *qp) recvCompleted(wc verbs.WC, freedTo uint64, solicited bool) {
	wc.QPN = q.number
	q.push(q.recvCQ, soft.Completion{WC: wc, Freed: &q.freedRecvs, FreedTo: freedTo, Owner: q}, solicited)
}

func (q *qp) asyncEvent(kind verbs.EventKind) {
	q.pd.dev.Event(verbs.AsyncEvent{Kind: kind, QPN: q.number})
}

// push adds a completion to a completion queue. A full queue loses the completion, and
// its polls return an error.
func (q *qp) push(c *soft.CQ, e soft.Completion, solicited bool) {
	fired, space := c.Push(e, solicited, q.receiving)
	if fired {
		q.endpoint.fired = append(q.endpoint.fired, c)
	}
	if !space {
		q.pd.dev.Event(verbs.AsyncEvent{Kind: verbs.EventCQError})
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
