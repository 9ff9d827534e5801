package tcp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// qp implements verbs.QP: a machine and the connection that carries its frames.
type qp struct {
	pd             *pd
	number         verbs.QPN
	config         verbs.QPConfig
	sendCQ, recvCQ *soft.CQ
	freedRecvs     atomic.Uint64 // receive slots below are free; written by polls

	// conn is the present connection; nil before INIT. It exists before its sockets do.
	conn atomic.Pointer[conn]

	// mu guards the fields below. It is never held while a goroutine waits for the peer, and
	// for copies of at most smallContent bytes. Locks are taken in the order device, mu, the
	// access locks of the connection; then one of keys, completion queue and events.
	mu       sync.Mutex
	machine  machine
	closed   bool
	secret   [frame.SecretLen]byte // another one after ToReset
	peer     verbs.Endpoint        // from RTR on
	theirs   frame.Endpoint        // of the peer
	changed  chan struct{}         // closed and replaced when a waiting greeting should be looked at again
	reading  bool                  // the reader handles a frame: events go to callbacks
	fired    []*soft.CQ            // events for the reader's callbacks
	reason   error                 // why the connection was lost or never came; nil for none
	toldLoss bool                  // reason was logged

	timer   *time.Timer
	timerAt time.Duration
	armed   bool // timerAt is set
}

// object names the queue pair in errors.
func (q *qp) object() string { return fmt.Sprintf("%s QP %v", q.pd.dev.Name(), q.number) }

func (q *qp) now() time.Duration { return q.pd.dev.now() }

// usableLocked returns an error if the queue pair is closed.
func (q *qp) usableLocked(op string) error {
	if q.closed {
		return verbs.Errorf(op, q.object(), verbs.ErrClosed, "the queue pair is closed")
	}
	return nil
}

// sendCompleted, recvCompleted, asyncEvent, stopAccess and written implement completer. The
// caller holds q.mu.
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

func (q *qp) stopAccess() {
	if c := q.conn.Load(); c != nil {
		c.dead.Store(true)
		c.waitForAccess()
		c.wakeWriter() // for the end of the stream
	}
}

func (q *qp) written() uint64 {
	if c := q.conn.Load(); c != nil {
		c.writeAccess.Lock()
		defer c.writeAccess.Unlock()
	}
	return q.machine.req.written.Load()
}

// waitForAccess returns when all accesses to memory that are under way have ended. What was
// removed from the keys before is not used any more then.
func (q *qp) waitForAccess() {
	if c := q.conn.Load(); c != nil {
		c.waitForAccess()
	}
}

// push adds a completion to a completion queue. A full queue loses the completion, and its
// polls return an error.
func (q *qp) push(c *soft.CQ, e soft.Completion, solicited bool) {
	fired, space := c.Push(e, solicited, q.reading)
	if fired {
		q.fired = append(q.fired, c)
	}
	if !space {
		q.pd.dev.Event(verbs.AsyncEvent{Kind: verbs.EventCQError})
	}
}

// QPN implements verbs.QP.
func (q *qp) QPN() verbs.QPN { return q.number }

// Endpoint implements verbs.QP. ToReset changes Data.
func (q *qp) Endpoint() verbs.Endpoint {
	q.mu.Lock()
	defer q.mu.Unlock()
	own := frame.Endpoint{Secret: q.secret, Addresses: q.pd.dev.addresses}
	return verbs.Endpoint{QPN: q.number, Data: own.Append(nil)}
}

// MaxInline implements verbs.QP.
func (q *qp) MaxInline() int { return q.config.MaxInline }

// ConnectionError returns why the queue pair has no connection any more, or never got one;
// nil while there is no reason.
func (q *qp) ConnectionError() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.reason
}

// armLocked sets the timer to the machine's deadline. It leaves a timer that fires earlier
// alone, since expire sets it again.
func (q *qp) armLocked() {
	if q.timer == nil || q.closed {
		return
	}
	at, ok := q.machine.deadline()
	if !ok || q.armed && q.timerAt <= at {
		return
	}
	q.armed, q.timerAt = true, at
	q.timer.Reset(max(at-q.now(), 0))
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
	now := q.now()
	c := q.conn.Load()
	if !q.closed && c != nil {
		if written := time.Duration(c.wroteAt.Load()); written > q.machine.req.since {
			q.machine.req.alive(written)
		}
		if at, ok := q.machine.deadline(); ok && now >= at {
			q.machine.expire(now)
			if q.machine.state == verbs.StateErr {
				q.failedLocked()
			}
		}
	}
	q.armLocked()
	q.mu.Unlock()
	if c != nil {
		c.kick()
	}
}

// failedLocked logs once why a queue pair broke that got no sign of life.
func (q *qp) failedLocked() {
	if q.reason == nil {
		if q.machine.req.up {
			q.reason = fmt.Errorf("the peer's process gave no sign of life for %v", q.machine.req.allowed())
		} else {
			q.reason = fmt.Errorf("the peer did not connect in time")
		}
	}
	if !q.toldLoss {
		q.toldLoss = true
		q.pd.dev.log.Warn("tcp: a queue pair broke", "qp", q.number, "peer", q.peer.String(), "address", q.peer.Target, "reason", q.reason)
	}
}
