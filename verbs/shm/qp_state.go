//go:build linux

package shm

import (
	"context"
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/internal/soft"
)

// State implements verbs.QP.
func (q *qp) State() (verbs.QPState, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.usableLocked("query"); err != nil {
		return 0, err
	}
	return q.state, nil
}

// stepLocked checks a change of state.
func (q *qp) stepLocked(op string, to verbs.QPState) error {
	if err := q.usableLocked(op); err != nil {
		return err
	}
	if err := verbs.CheckTransition(q.state, to); err != nil {
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
	case a.SGIDIndex != 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty: the only entry is 0", a.SGIDIndex)
	}
	q.access, q.state = a.Access, verbs.StateInit
	return nil
}

// ToRTR implements verbs.QP. It begins to connect, and does not wait for it.
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
	peer, err := parseEndpointData(a.Peer.Data)
	switch {
	case a.SGIDIndex != 0:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "GID index %d is empty: the only entry is 0", a.SGIDIndex)
	case a.Peer.GID.IsZero():
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "the peer has no GID, which names its process")
	case a.MaxDestReadAtomic > maxReadAtomic:
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%d outstanding reads: the limit is %d", a.MaxDestReadAtomic, maxReadAtomic)
	case err == nil:
		err = d.banned(a.Peer.GID)
	}
	if err == nil && d.closer.tooMany(a.Peer.GID) {
		err = fmt.Errorf("process %v has passed too many descriptors that are still being closed", a.Peer.GID)
	}
	if err != nil {
		return verbs.Errorf(op, q.object(), verbs.ErrInvalid, "%v", err)
	}
	q.state, q.peer, q.peerPSN, q.reads = verbs.StateRTR, peer, a.Peer.PSN, a.MaxDestReadAtomic
	q.req.rnrDelay = rnrDelay[a.MinRNRTimer] * rnrUnit
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
	q.connection = time.AfterFunc(connectTime, func() { q.connectionExpired(attempt) })
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
	r := &q.req
	if q.state != verbs.StateRTS {
		r.psn = a.PSN // set once only
	}
	r.rnrRetry, r.maxReads = a.RNRRetry, a.MaxReadAtomic
	if r.timeout = verbs.TimeoutDuration(a.Timeout) * time.Duration(a.Retry+1); r.timeout > 0 {
		r.timeout = max(r.timeout, minPatience)
	}
	q.state = verbs.StateRTS
	if l := q.link; l != nil { // responses that came in RTR count from now on
		q.nudge(l)
	}
	return nil
}

// ToErr implements verbs.QP.
func (q *qp) ToErr() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.stepLocked("bring to ERR", verbs.StateErr); err != nil {
		return err
	}
	q.breakLocked()
	return nil
}

// takeBackLocked takes back the memory that the peer may read for this queue pair: whatever the
// peer copies from now on does not count. It comes before any of that memory is given to its
// owner.
func (q *qp) takeBackLocked() {
	if q.link != nil {
		word(q.link.own.mem, atEpoch).Swap(0) // a swap: later writes to the memory stay behind it
	}
}

// breakLocked moves the queue pair to ERR and flushes all posted work requests, also unsignaled
// ones, as rxe and NICs do (specification, volume 1, 10.3.1). While content is being copied for
// the queue pair the work requests stay; they are flushed when the copy has ended.
func (q *qp) breakLocked() {
	if q.state == verbs.StateErr {
		return
	}
	q.takeBackLocked()
	q.state = verbs.StateErr
	q.stopConnectingLocked()
	if q.copying {
		q.flush = true
		return
	}
	q.flushLocked()
}

// stopConnectingLocked ends the attempt to connect, if there is one.
func (q *qp) stopConnectingLocked() {
	if q.connection != nil {
		q.connection.Stop()
		q.connection = nil
	}
	if q.stopDial != nil {
		q.stopDial()
		q.stopDial = nil
	}
}

// flushLocked completes all work requests with an error.
func (q *qp) flushLocked() {
	q.flush = false
	r, p := &q.req, &q.resp
	status := q.breakStatus
	q.breakStatus = verbs.StatusOK
	for r.completed < r.posted {
		if status == verbs.StatusOK {
			status = verbs.StatusFlushed
		}
		q.completeSendLocked(r.sends.At(r.completed), status)
		status = verbs.StatusFlushed
	}
	r.next, r.offset, r.begun = r.posted, 0, false
	if p.message.send {
		p.consumed-- // its receive is flushed, too
	}
	p.message = message{}
	for p.consumed < p.posted {
		p.consumed++
		q.completeRecvLocked(verbs.WC{Status: verbs.StatusFlushed}, false)
	}
}

// takeLink takes the link away from the queue pair, after the slice that is under way. The caller
// holds none of its locks; on return it holds both.
func (q *qp) takeLink() {
	q.stopping.Add(1)
	q.drive.Lock()
	q.stopping.Add(-1)
	q.mu.Lock()
	q.takeBackLocked()
	q.stopConnectingLocked()
	if l := q.link; l != nil {
		q.link = nil
		q.live.Store(nil)
		l.detach()
	}
}

// ToReset implements verbs.QP. The queue pair gets a new secret, so its endpoint changes.
func (q *qp) ToReset() error {
	q.mu.Lock()
	err := q.stepLocked("bring to RESET", verbs.StateReset)
	q.mu.Unlock()
	if err != nil {
		return err
	}
	q.takeLink()
	defer q.drive.Unlock()
	defer q.mu.Unlock()
	if err := q.stepLocked("bring to RESET", verbs.StateReset); err != nil {
		return err
	}
	q.sendCQ.Purge(q) // before the reset: polling an old completion after it would free slots in use
	q.recvCQ.Purge(q)
	q.becomeReadyLocked()
	q.ready, q.isReady = make(chan struct{}), false
	q.own.secret, q.attempt, q.refused, q.failed = newSecret(), q.attempt+1, false, nil
	q.state, q.established, q.flush, q.breakStatus = verbs.StateReset, false, false, verbs.StatusOK
	q.req.reset()
	q.resp = responder{recvs: q.resp.recvs}
	q.freedRecvs.Store(0)
	q.stopTimerLocked()
	return nil
}

// reset forgets all work requests.
func (r *requester) reset() {
	r.freed.Store(0)
	r.posted, r.completed, r.next, r.offset, r.begun = 0, 0, 0, 0, false
	r.published, r.acked, r.done, r.reads, r.chunks, r.deaf = 0, 0, 0, 0, 0, false
	r.rnr, r.rnrTries, r.retryAt, r.lastCopied = false, 0, time.Time{}, 0
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
	q.takeLink()
	q.closed = true
	q.becomeReadyLocked()
	q.stopTimerLocked()
	q.mu.Unlock()
	q.drive.Unlock()
	q.sendCQ.Purge(q)
	q.recvCQ.Purge(q)
	q.sendCQ.unuseLocked(q)
	q.recvCQ.unuseLocked(q)
	q.pd.DropQPLocked(q.sendCQ.CQ, q.recvCQ.CQ)
	return nil
}

// violatedLocked breaks the queue pair because its peer does not keep to the protocol.
func (q *qp) violatedLocked(err error) {
	q.pd.dev.breach(q, err)
	if q.state != verbs.StateErr {
		q.event(verbs.EventQPProtocol)
	}
	q.failSendLocked(verbs.StatusBadResponse)
}

// regionClosed breaks the queue pair if the peer may still read a region that was closed.
func (q *qp) regionClosed(m *soft.Region) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r := &q.req
	for i := r.acked; i < r.published && q.state != verbs.StateErr; i++ {
		p := &r.parts[i%ringEntries]
		if !p.shared {
			continue
		}
		for _, s := range r.sends.At(p.work).sgl {
			if s.LKey == m.LKey() && s.Length > 0 {
				q.failSendLocked(verbs.StatusLocalProtection)
				break
			}
		}
	}
	if b := backingOf(m); b != nil && q.link != nil && q.readUnderWayLocked(func(a answered) bool { return a.file == b.file.id }) {
		q.failSendLocked(verbs.StatusLocalProtection)
	}
}

// windowClosed breaks the queue pair if the peer may still read through a window that was closed.
func (q *qp) windowClosed(key verbs.RKey) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.link != nil && q.readUnderWayLocked(func(a answered) bool { return a.file != 0 && a.key == key }) {
		q.breakLocked()
	}
}

// readUnderWayLocked reports whether the peer may still read memory for a READ that was answered.
func (q *qp) readUnderWayLocked(from func(answered) bool) bool {
	p := &q.resp
	consumed := uint64(0)
	if err := guard(func() { consumed = word(q.link.peer, atConsumed).Load() }); err != nil {
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
	if q.timer != nil {
		q.timer.Stop()
	}
	q.armed = false
}

// armLocked sets the timer. It leaves a timer that fires earlier alone, since expire sets it
// again.
func (q *qp) armLocked(at time.Time) {
	if q.closed || q.armed && !at.Before(q.timerAt) {
		return
	}
	q.armed, q.timerAt = true, at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.expire)
		return
	}
	q.timer.Reset(max(time.Until(at), 0))
}

// expire is called by the timer. It runs only while work requests are outstanding.
func (q *qp) expire() {
	q.mu.Lock()
	q.armed = false
	var wake *link
	if q.state == verbs.StateRTS && !q.closed {
		wake = q.checkTimeLocked(time.Now())
	}
	l := q.link
	if q.resp.blocked && l != nil {
		q.resp.blocked = false
		defer q.nudge(l)
	}
	q.mu.Unlock()
	wake.wake()
}

func (q *qp) checkTimeLocked(now time.Time) (wake *link) {
	r := &q.req
	if !r.retryAt.IsZero() && !now.Before(r.retryAt) {
		r.retryAt = time.Time{}
		wake = q.publishLocked()
	} else if !r.retryAt.IsZero() { // the timer fired for another reason
		q.armLocked(r.retryAt)
	}
	if r.completed == r.posted || q.state != verbs.StateRTS {
		return wake
	}
	var s words
	if q.link != nil {
		if err := guard(func() { s = readWords(q.link.peer) }); err != nil {
			q.violatedLocked(err)
			return wake
		}
	}
	switch {
	case r.rnr && s.noReceive == r.acked+1 && s.done == r.acked:
		r.progress = now
		if r.rnrRetry == rnrInfinite {
			break
		}
		if !now.Before(r.rnrUntil) {
			if r.rnrTries++; r.rnrTries > r.rnrRetry {
				q.failSendLocked(verbs.StatusRNRRetryExceeded)
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
		q.failSendLocked(verbs.StatusRetryExceeded)
		return wake
	}
	q.armLocked(r.progress.Add(r.timeout))
	return wake
}

// connectionExpired breaks a queue pair whose connection did not come in time.
func (q *qp) connectionExpired(attempt uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.attempt != attempt || q.link != nil || q.state == verbs.StateErr {
		return
	}
	err := q.failed
	if err == nil {
		err = fmt.Errorf("no connection came within %v", connectTime)
	}
	q.pd.dev.logger.Info("shm: a queue pair has no connection", "queue pair", q.number, "peer", q.ends.qpns, "error", err)
	q.event(verbs.EventQPFatal)
	q.failSendLocked(verbs.StatusRetryExceeded)
}
