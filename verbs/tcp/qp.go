package tcp

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// qp implements verbs.QP: a machine and the connection that carries its frames.
type qp struct {
	pd     *pd
	number verbs.QPN

	sendCQ, recvCQ *soft.DrivenCQ
	pollers        atomic.Int32 // queues whose callers poll all the time

	// conn is the present connection; nil before INIT. It exists before its sockets do.
	conn atomic.Pointer[conn]

	// mu guards the fields below. It is never held while a goroutine waits for the peer, and
	// for copies of at most smallContent bytes. Locks are taken in the order device, mu, the
	// access locks of the connection; then one of keys, completion queue and events.
	mu      sync.Mutex
	machine machine
	soft.Completions
	secret   [frame.SecretLen]byte // another one after ToReset
	peer     verbs.Endpoint        // from RTR on
	theirs   frame.Endpoint        // of the peer
	changed  chan struct{}         // closed and replaced when a waiting greeting should be looked at again
	reason   error                 // why the connection was lost or never came; nil for none
	toldLoss bool                  // reason was logged

	timer   *time.Timer
	timerAt time.Duration
	armed   bool // timerAt is set
}

// Drive implements soft.Driven: it reads what the peer has sent.
func (q *qp) Drive() {
	if c := q.conn.Load(); c != nil {
		c.reader.poll()
	}
}

// Polled implements soft.Driven. The goroutine of the reader waits for the socket all the same.
func (q *qp) Polled(change int32) { q.pollers.Add(change) }

func (q *qp) now() time.Duration { return q.pd.dev.now() }

// TakeBack, Usable, Granted, written and update implement owner, with soft.Completions. The caller
// holds q.mu.

// TakeBack waits for the accesses that are under way.
func (q *qp) TakeBack() bool {
	if c := q.conn.Load(); c != nil {
		c.dead.Store(true)
		c.waitForAccess()
		c.wakeWriter() // for the end of the stream
	}
	return true
}

// Usable checks memory of work requests. Each access looks it up again.
func (q *qp) Usable(sgl []verbs.SGE, write bool) bool {
	return q.pd.Keys.Usable(&q.pd.Domain, sgl, write)
}

// Granted checks memory that the peer names. Each access looks it up again.
func (q *qp) Granted(addr, length uint64, key verbs.RKey, need verbs.Access) bool {
	_, ok := q.granted(addr, length, key, need)
	return ok
}

func (q *qp) written() uint64 {
	if c := q.conn.Load(); c != nil {
		c.writeAccess.Lock()
		defer c.writeAccess.Unlock()
	}
	return q.machine.req.written.Load()
}

func (q *qp) update(r *rc.Request, a, b uint64) (old uint64, ok bool) {
	mem, ok := q.granted(r.Addr, 8, r.RKey, verbs.AccessRemoteAtomic)
	if !ok {
		return 0, false
	}
	return q.pd.Keys.FetchAndUpdate(mem, func(old uint64) uint64 { return rc.Atomic(r.Op, old, a, b) }), true
}

// granted returns memory that the peer names, and gather that of n bytes of a list. It is valid until
// the end of the caller's access.
func (q *qp) granted(addr, n uint64, key verbs.RKey, need verbs.Access) ([]byte, bool) {
	return q.pd.Keys.Granted(&q.pd.Domain, q, addr, n, key, need)
}

func (q *qp) gather(sgl []verbs.SGE, off, n uint64, write bool, buffers [][]byte) ([][]byte, bool) {
	return q.pd.Keys.Gather(&q.pd.Domain, sgl, off, n, write, buffers)
}

// waitForAccess returns when all accesses to memory that are under way have ended. What was
// removed from the keys before is not used any more then.
func (q *qp) waitForAccess() {
	if c := q.conn.Load(); c != nil {
		c.waitForAccess()
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
func (q *qp) MaxInline() int { return q.machine.MaxInline() }

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
	if q.timer == nil || q.machine.Closed() {
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
	if !q.machine.Closed() && c != nil {
		if written := time.Duration(c.wroteAt.Load()); written > q.machine.req.since {
			q.machine.req.alive(written)
		}
		if at, ok := q.machine.deadline(); ok && now >= at {
			q.machine.expire(now)
			if q.machine.State() == verbs.StateErr {
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
		q.pd.dev.log.Warn("tcp: a queue pair broke", "queue_pair", q.number.String(), "peer", q.peer.String(), "address", q.peer.Target, "reason", q.reason)
	}
}
