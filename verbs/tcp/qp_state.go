package tcp

import (
	"bytes"
	"crypto/rand"
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp/internal/frame"
)

// State implements verbs.QP.
func (q *qp) State() (verbs.QPState, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.Open("query"); err != nil {
		return 0, err
	}
	return q.machine.State(), nil
}

// ToInit implements verbs.QP.
func (q *qp) ToInit(a verbs.InitAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	fresh := q.machine.State() == verbs.StateReset
	if err := q.machine.ToInit(a); err != nil {
		return err
	}
	if fresh {
		q.conn.Store(newConn(q))
	}
	return nil
}

// ToRTR implements verbs.QP. It begins to connect and does not wait for it.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	const op = "bring to RTR"
	d := q.pd.dev
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.CheckRTR(&a); err != nil {
		return err
	}
	var theirs frame.Endpoint
	if err := theirs.Parse(a.Peer.Data); err != nil {
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the peer's endpoint is not that of a device of TCP: %v", err)
	}
	switch {
	case a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the peer has no GID")
	case len(theirs.Addresses) == 0 && len(d.addresses) == 0:
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "neither this side nor the peer has an address on which it takes connections")
	}
	q.peer, q.theirs = a.Peer, theirs
	q.peer.Data = nil
	q.machine.toRTR(q.now(), &a)
	q.changedLocked()
	if q.connects() {
		c := q.conn.Load()
		d.wg.Go(c.dial)
	}
	if q.timer == nil {
		q.timer = time.AfterFunc(never, q.expire)
	}
	q.armLocked()
	return nil
}

// connects reports whether this side connects: the one that cannot be dialed, else the one with
// the lower secret. A queue pair that is connected to itself does both.
func (q *qp) connects() bool {
	switch {
	case len(q.theirs.Addresses) == 0:
		return false
	case len(q.pd.dev.addresses) == 0:
		return true
	}
	return bytes.Compare(q.secret[:], q.theirs.Secret[:]) <= 0
}

// isSelf reports whether the queue pair is its own peer.
func (q *qp) isSelf() bool { return q.secret == q.theirs.Secret }

// ToRTS implements verbs.QP.
func (q *qp) ToRTS(a verbs.RTSAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.machine.toRTS(&a)
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.machine.ToErr()
}

// ToReset implements verbs.QP. It closes the connection.
func (q *qp) ToReset() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.Step("bring to RESET", verbs.StateReset); err != nil {
		return err
	}
	q.leaveLocked(errors.New("the queue pair was reset"))
	q.Purge()
	q.machine.reset()
	rand.Read(q.secret[:]) // never fails (crypto/rand)
	q.reason, q.toldLoss = nil, false
	return nil
}

// leaveLocked ends the connection: when it has returned, no memory is accessed.
func (q *qp) leaveLocked(why error) {
	q.stopTimerLocked()
	if c := q.conn.Load(); c != nil {
		c.dead.Store(true)
		c.waitForAccess()
		q.conn.Store(nil) // only now: Close of a window or region that sees no connection does not wait
		c.close()
	}
	q.changedLocked()
}

// changedLocked lets greetings that wait look at the queue pair again.
func (q *qp) changedLocked() {
	close(q.changed)
	q.changed = make(chan struct{})
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if _, open := d.qps[q]; !open {
		return nil
	}
	delete(d.qps, q)
	d.forget(q)
	q.mu.Lock()
	q.machine.Close()
	q.leaveLocked(errors.New("the queue pair was closed"))
	q.mu.Unlock()
	q.Purge()
	q.sendCQ.Unuse(q)
	q.recvCQ.Unuse(q)
	q.pd.DropQPLocked(q.Send, q.Recv)
	return nil
}
