package delivery

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// hello is the event that a hello has ended. An error that is neither the connection's
// nor a LostError is the peer's own, and ends what waits. A peer that was Tryst counts as
// Tryst until maxSameLosses answers in a row say the opposite.
func (m *requests) hello(now time.Time, p transport.Peer, err error) []requestAction {
	m.probing = false
	if m.conn == connUp || m.conn == connNone && !m.seeks {
		return nil
	}
	if err == nil && !p.Tryst && m.incarnation != 0 && !m.hellos.add(errNotTryst) {
		err = &transport.LostError{Err: errNotTryst}
	} else if final := m.refused(err); final != nil {
		m.tried, m.seeks = true, false
		return m.refuse(now, final)
	}
	if err != nil {
		return m.helloFailed(now, err)
	}
	if p.Incarnation == m.incarnation && m.briefs.last(now, m.peerTimeout) {
		m.tried, m.unreached = true, now // it has answered, and may keep what it matched since
		return m.seek(now, m.fail(m.briefs.err(m)))
	}
	if p.Incarnation != m.incarnation {
		m.acks = acks{flushing: m.flushing, wakeAt: m.wakeAt, closing: m.closing, callBy: m.callBy}
	}
	m.conn, m.incarnation, m.plain, m.seeks = connUp, p.Incarnation, !p.Tryst, false
	m.generation++
	m.up, m.served, m.window, m.widen = now, false, maxResent, time.Time{}
	acts := m.endAllOld()
	m.why = nil
	return m.flush(now, m.drain(now, acts))
}

func (m *requests) helloFailed(now time.Time, err error) []requestAction {
	m.tried = true
	waited := now.Sub(m.unreached)
	switch {
	case m.conn == connNone:
		return m.seek(now, nil)
	case waited >= m.peerTimeout:
		return m.seek(now, m.fail(status.Errorf(status.Unavailable,
			"%s was not reached for %v: %s%s", m.peer, m.peerTimeout, status.From(err).Message(), firstSentence(becauseOf(m.why)))))
	}
	pause := min(m.pause, m.peerTimeout-waited)
	m.pause = min(2*m.pause, helloPauseMax)
	return m.probe(now, pause)
}

var errNotTryst = status.New(status.Unimplemented, "the peer is not Tryst any more")

// refused returns the error that the transfers end with after a hello that ended with
// err; nil when another hello is to be made.
func (m *requests) refused(err error) error {
	if _, lost := errors.AsType[*transport.LostError](err); lost {
		if m.hellos.add(err) {
			return endless(m.peer, "the request for its name", err)
		}
		return nil
	}
	switch status.CodeOf(err) {
	case status.OK, status.Unavailable, status.DeadlineExceeded, status.Cancelled, status.Unknown:
		return nil
	}
	return status.From(err).WithPrefix(m.peer)
}

// refuse ends what began before the hello that the peer has refused with err. What has begun since asks again: the
// answer may be older, and a task that has come back to a cluster must not hear that it has left it.
func (m *requests) refuse(now time.Time, err error) []requestAction {
	var since []*Transfer
	for _, t := range m.fresh {
		if !t.over && t.asked.After(m.asks) {
			since = append(since, t)
			delete(m.transfers, t.ID)
		}
	}
	acts := m.fail(err)
	if len(since) == 0 {
		return acts
	}
	for _, t := range since {
		m.transfers[t.ID] = t
	}
	m.fresh = since
	return append(acts, m.reach(now, nil)...)
}

// seek goes on looking for a peer that no transfer waits for, as long as the peer may
// keep values that were cancelled: they go back to their keys when it gets the cancels.
func (m *requests) seek(now time.Time, acts []requestAction) []requestAction {
	m.seeks = !m.over && len(m.cancelled) > 0 && now.Sub(m.unreached) < expireAfter
	if !m.seeks {
		return acts
	}
	return append(acts, m.probe(now, helloPauseMax)...)
}
