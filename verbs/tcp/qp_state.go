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
	if err := q.usableLocked("query"); err != nil {
		return 0, err
	}
	return q.machine.state, nil
}

// stepLocked checks a change of state.
func (q *qp) stepLocked(op string, to verbs.QPState) error {
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(q.machine.state, to); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	return nil
}

// ToInit implements verbs.QP.
func (q *qp) ToInit(a verbs.InitAttr) error {
	const op = "bring to INIT"
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateInit); err != nil {
		return err
	}
	switch {
	case a.Port != onlyPort:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "port %d: the only port is %d", a.Port, onlyPort)
	case a.PKeyIndex != 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "partition key index %d: the only index is 0", a.PKeyIndex)
	case a.SGIDIndex != onlyGID:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty: the only GID has the index %d", a.SGIDIndex, onlyGID)
	}
	if q.machine.state == verbs.StateReset {
		q.conn.Store(newConn(q))
	}
	q.machine.access, q.machine.state = a.Access, verbs.StateInit
	return nil
}

// ToRTR implements verbs.QP. It begins to connect and does not wait for it.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	const op = "bring to RTR"
	d := q.pd.dev
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateRTR); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	var theirs frame.Endpoint
	if err := theirs.Parse(a.Peer.Data); err != nil {
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer's endpoint is not that of a device of TCP: %v", err)
	}
	switch {
	case a.SGIDIndex != onlyGID:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty: the only GID has the index %d", a.SGIDIndex, onlyGID)
	case a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer has no GID")
	case a.MaxDestReadAtomic > maxReadAtomic:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxDestReadAtomic, maxReadAtomic)
	case len(theirs.Addresses) == 0 && len(d.addresses) == 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "neither this side nor the peer has an address on which it takes connections")
	}
	q.peer, q.theirs = a.Peer, theirs
	q.peer.Data = nil
	q.machine.toRTR(q.now(), a)
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
	const op = "bring to RTS"
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked(op, verbs.StateRTS); err != nil {
		return err
	}
	if err := a.Check(); err != nil {
		return &verbs.Error{Op: op, Object: q.object(), Err: err}
	}
	if a.MaxReadAtomic > maxReadAtomic {
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxReadAtomic, maxReadAtomic)
	}
	q.machine.toRTS(a)
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked("bring to ERR", verbs.StateErr); err != nil {
		return err
	}
	q.machine.enterError()
	return nil
}

// ToReset implements verbs.QP. It closes the connection.
func (q *qp) ToReset() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked("bring to RESET", verbs.StateReset); err != nil {
		return err
	}
	q.leaveLocked(errors.New("the queue pair was reset"))
	q.sendCQ.Purge(q) // before the reset: polling an old completion after it would free slots in use
	q.recvCQ.Purge(q)
	q.machine.reset()
	q.freedRecvs.Store(0)
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
	q.closed = true
	q.leaveLocked(errors.New("the queue pair was closed"))
	q.mu.Unlock()
	q.sendCQ.Purge(q)
	q.recvCQ.Purge(q)
	q.pd.DropQPLocked(q.sendCQ, q.recvCQ)
	return nil
}
