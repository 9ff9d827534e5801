//go:build linux

package shm

import (
	"context"
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/rc"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
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
	return q.machine.ToInit(a)
}

// ToRTR implements verbs.QP. It begins to connect, and does not wait for it.
func (q *qp) ToRTR(a verbs.RTRAttr) error {
	const op = "bring to RTR"
	d := q.pd.dev
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.CheckRTR(&a); err != nil {
		return err
	}
	peer, err := parseEndpointData(a.Peer.Data)
	switch {
	case a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "the peer has no GID, which names its process")
	case err == nil:
		err = d.banned(a.Peer.GID)
	}
	if err == nil && d.closer.tooMany(a.Peer.GID) {
		err = fmt.Errorf("process %v has passed too many descriptors that are still being closed", a.Peer.GID)
	}
	if err != nil {
		return verbs.Errorf(op, q.machine.Object(), verbs.ErrInvalid, "%v", err)
	}
	q.machine.EnterRTR(&a)
	q.peer, q.resp.psn = peer, a.Peer.PSN
	q.req.rnrDelay, _ = rc.RNRDelay(uint32(a.MinRNRTimer))
	q.role = roleOf(q.own.secret, peer.secret)
	mine, theirs := 0, 1
	if q.role == acceptor {
		mine, theirs = 1, 0
	}
	q.ends.gids[mine], q.ends.qpns[mine], q.ends.secrets[mine] = d.gid, q.number, q.own.secret
	q.ends.gids[theirs], q.ends.qpns[theirs], q.ends.secrets[theirs] = a.Peer.GID, a.Peer.QPN, peer.secret
	q.attempt++
	attempt := q.attempt
	if a.Peer.GID == d.gid && a.Peer.QPN == q.number {
		return q.connectToItselfLocked(op)
	}
	q.becomeReadyLocked()
	q.patience = time.AfterFunc(connectTime, func() { q.connectionExpired(attempt) })
	if q.role == connector {
		ctx, cancel := context.WithTimeout(d.ctx, connectTime)
		q.stopDial = cancel
		d.running.Go(func() {
			defer cancel()
			q.connect(ctx, attempt)
		})
	}
	return nil
}

// becomeReadyLocked lets hellos of the peer be checked.
func (q *qp) becomeReadyLocked() {
	if !q.isReady {
		q.isReady = true
		close(q.ready)
	}
}

// ToRTS implements verbs.QP.
func (q *qp) ToRTS(a verbs.RTSAttr) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.machine.CheckRTS(&a); err != nil {
		return err
	}
	r := &q.req
	if q.machine.EnterRTS(&a, 0) {
		r.psn = a.PSN
	}
	if r.timeout = verbs.TimeoutDuration(a.Timeout) * time.Duration(a.Retry+1); r.timeout > 0 {
		r.timeout = max(r.timeout, minPatience)
	}
	if l := q.connection; l != nil { // responses that came in RTR count from now on
		q.nudge(l)
	}
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.machine.ToErr()
}

// takeBackLocked takes back the memory that the peer may read for this queue pair: whatever the
// peer copies from now on does not count. It comes before any of that memory is given to its
// owner.
func (q *qp) takeBackLocked() {
	if q.connection != nil {
		word(q.connection.own.mem, atEpoch).Swap(0) // a swap: later writes to the memory stay behind it
	}
}

// stopConnectingLocked ends the attempt to connect, if there is one.
func (q *qp) stopConnectingLocked() {
	if q.patience != nil {
		q.patience.Stop()
		q.patience = nil
	}
	if q.stopDial != nil {
		q.stopDial()
		q.stopDial = nil
	}
}

// takeConnection takes the connection away from the queue pair, after the slice that is under way. The caller
// holds none of its locks; on return it holds both.
func (q *qp) takeConnection() {
	q.stopping.Add(1)
	q.drive.Lock()
	q.stopping.Add(-1)
	q.mu.Lock()
	q.takeBackLocked()
	q.stopConnectingLocked()
	if l := q.connection; l != nil {
		q.connection = nil
		q.live.Store(nil)
		l.detach()
	}
}

// ToReset implements verbs.QP. The queue pair gets a new secret, so its endpoint changes.
func (q *qp) ToReset() error {
	const op = "bring to RESET"
	q.mu.Lock()
	err := q.machine.Step(op, verbs.StateReset)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	q.takeConnection()
	defer q.drive.Unlock()
	defer q.mu.Unlock()
	if err := q.machine.Step(op, verbs.StateReset); err != nil {
		return err
	}
	q.Purge()
	q.machine.Reset()
	q.becomeReadyLocked()
	q.ready, q.isReady = make(chan struct{}), false
	q.own.secret, q.attempt, q.refused, q.failed = newSecret(), q.attempt+1, false, nil
	q.req, q.resp = requester{}, responder{}
	q.stopTimerLocked()
	return nil
}

// Close implements verbs.QP.
func (q *qp) Close() error {
	d := q.pd.dev
	d.Mu.Lock()
	defer d.Mu.Unlock()
	if d.qps[q.number] != q {
		return nil
	}
	delete(d.qps, q.number)
	q.takeConnection()
	q.machine.Close()
	q.becomeReadyLocked()
	q.stopTimerLocked()
	q.mu.Unlock()
	q.drive.Unlock()
	q.Purge()
	q.sendCQ.Unuse(q)
	q.recvCQ.Unuse(q)
	q.pd.DropQPLocked(q.Send, q.Recv)
	return nil
}

// violatedLocked breaks the queue pair because its peer does not keep to the protocol.
func (q *qp) violatedLocked(err error) {
	q.pd.dev.breach(q, err)
	if q.machine.State() != verbs.StateErr {
		q.Event(verbs.EventQPProtocol)
	}
	q.machine.Fail(verbs.StatusBadResponse)
}

// regionClosed breaks the queue pair if the peer may still read a region that was closed.
func (q *qp) regionClosed(m *soft.Region) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.req
	for i := r.acked; i < r.published && q.machine.State() != verbs.StateErr; i++ {
		p := &r.parts[i%ringEntries]
		if !p.shared {
			continue
		}
		for _, s := range q.machine.Work(p.work).SGL {
			if s.LKey == m.LKey() && s.Length > 0 {
				q.machine.Fail(verbs.StatusLocalProtection)
				break
			}
		}
	}
	if b := backingOf(m); b != nil && q.connection != nil && q.readUnderWayLocked(func(a answered) bool { return a.file == b.file.id }) {
		q.machine.Fail(verbs.StatusLocalProtection)
	}
}

// windowClosed breaks the queue pair if the peer may still read through a window that was closed.
func (q *qp) windowClosed(key verbs.RKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.connection != nil && q.readUnderWayLocked(func(a answered) bool { return a.file != 0 && a.key == key }) {
		q.machine.Break()
	}
}

// readUnderWayLocked reports whether the peer may still read memory for a READ that was answered.
func (q *qp) readUnderWayLocked(from func(answered) bool) bool {
	p := &q.resp
	consumed := uint64(0)
	if err := guard(func() { consumed = word(q.connection.peer, atConsumed).Load() }); err != nil {
		return true
	}
	for i := p.executed - min(p.executed, ringEntries); i < p.executed; i++ {
		if i >= consumed && from(p.reads[i%ringEntries]) {
			return true
		}
	}
	return false
}

func (q *qp) stopTimerLocked() {
	if q.clock != nil {
		q.clock.Stop()
	}
	q.armed = false
}

// armLocked sets the timer. It leaves a timer that fires earlier alone, since expire sets it
// again.
func (q *qp) armLocked(at time.Time) {
	if q.machine.Closed() || q.armed && !at.Before(q.timerAt) {
		return
	}
	q.armed, q.timerAt = true, at
	if q.clock == nil {
		q.clock = time.AfterFunc(time.Until(at), q.expire)
		return
	}
	q.clock.Reset(max(time.Until(at), 0))
}

// expire is called by the timer. It runs only while work requests are outstanding.
func (q *qp) expire() {
	q.mu.Lock()
	q.armed = false
	var wake *connection
	if q.machine.State() == verbs.StateRTS && !q.machine.Closed() {
		wake = q.checkTimeLocked(time.Now())
	}
	l := q.connection
	if q.resp.blocked && l != nil {
		q.resp.blocked = false
		defer q.nudge(l)
	}
	q.mu.Unlock()
	wake.wake()
}

func (q *qp) checkTimeLocked(now time.Time) (wake *connection) {
	r := &q.req
	if !r.retryAt.IsZero() && !now.Before(r.retryAt) {
		r.retryAt = time.Time{}
		wake = q.publishLocked()
	} else if !r.retryAt.IsZero() { // the timer fired for another reason
		q.armLocked(r.retryAt)
	}
	if q.machine.Idle() || q.machine.State() != verbs.StateRTS {
		return wake
	}
	var s words
	if q.connection != nil {
		if err := guard(func() { s = readWords(q.connection.peer) }); err != nil {
			q.violatedLocked(err)
			return wake
		}
	}
	switch {
	case r.rnr && s.noReceive == r.acked+1 && s.done == r.acked:
		r.progress = now
		if q.machine.RNREndless() {
			break
		}
		if !now.Before(r.rnrUntil) {
			if !q.machine.NotReady() {
				return wake
			}
			r.rnrUntil = now.Add(r.rnrDelay)
		}
		q.armLocked(r.rnrUntil)
		return wake
	case s.copied != r.lastCopied || s.done != r.done:
		r.lastCopied, r.progress = s.copied, now
	}
	if r.timeout == 0 {
		return wake
	}
	if now.Sub(r.progress) >= r.timeout {
		q.machine.Fail(verbs.StatusRetryExceeded)
		return wake
	}
	q.armLocked(r.progress.Add(r.timeout))
	return wake
}

// connectionExpired breaks a queue pair whose connection did not come in time.
func (q *qp) connectionExpired(attempt uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.machine.Closed() || q.attempt != attempt || q.connection != nil || q.machine.State() == verbs.StateErr {
		return
	}
	err := q.failed
	if err == nil {
		err = fmt.Errorf("no connection came within %v", connectTime)
	}
	q.pd.dev.logger.Info("shm: a queue pair has no connection", "queue_pair", q.number.String(), "peer_queue_pair", q.ends.qpns[1].String(), "reason", err)
	q.Event(verbs.EventQPFatal)
	q.machine.Fail(verbs.StatusRetryExceeded)
}
