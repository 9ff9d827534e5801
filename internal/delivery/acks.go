package delivery

import (
	"errors"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// acks is what the peer has to learn beside requests: which responses have arrived, and
// which receives were cancelled. Cancels are sent at once. Acknowledgements wait a
// little for a request to go with, less when the peer keeps much memory for them. One
// batch is under way at a time, and more ids gather meanwhile. What the peer has not
// confirmed is sent again.
//
// Where no request came in time for the acknowledgements before, as in a program that receives
// now and then, these wait for none: waiting would only make the peer's SendWait later.
type acks struct {
	pending      []uint64  // responses to acknowledge
	pendingBytes int64     // their size
	flushBy      time.Time // when they are sent without a request
	alone        bool      // so were those before, at aloneAt, and no request followed soon
	aloneAt      time.Time
	cancelled    []uint64  // receives to cancel
	cancelling   []uint64  // likewise: a doCancel is under way for them
	acking       []uint64  // a doAck is under way for them
	flushing     bool      // a doAck or doCancel is under way
	wakeAt       time.Time // when a tick is due; zero when none is
	closing      bool      // no request will follow
	callBy       time.Time // until when a lost peer is to be reached then
	losses       losses    // of batches
}

// flushedAll reports whether there is nothing to send.
func (u *acks) flushedAll() bool { return len(u.pending) == 0 && len(u.cancelled) == 0 }

// ack acknowledges responses of size bytes, with the next request or soon.
func (m *requests) ack(now time.Time, size int64, ids ...uint64) {
	u := &m.acks
	if len(u.pending) == 0 {
		u.flushBy = now.Add(ackDelay)
	}
	u.pending = append(u.pending, ids...)
	u.pendingBytes += size
	switch soon := now.Add(ackSoon); {
	case u.alone:
		u.flushBy = now
	case u.pendingBytes >= m.ackBytes && u.flushBy.After(soon):
		u.flushBy = soon
	}
}

// takeAcks takes the ids that a request acknowledges.
func (u *acks) takeAcks() []uint64 {
	var ids []uint64
	ids, u.pending = cut(u.pending, maxAcksOfRequest)
	if len(u.pending) == 0 {
		u.pendingBytes = 0
	}
	return ids
}

// requested notes that a receive begins, whose request carries acknowledgements or could have carried those before.
func (u *acks) requested(now time.Time) {
	if len(u.pending) > 0 || now.Sub(u.aloneAt) < ackDelay {
		u.alone = false
	}
}

// unconfirmed returns the cancelled ids that the peer has not confirmed.
func (u *acks) unconfirmed() []uint64 {
	if len(u.cancelling)+len(u.cancelled) == 0 {
		return nil
	}
	return slices.Concat(u.cancelling, u.cancelled)
}

// cancelsFit reports whether these fit into a request. Then values come in order: those
// of the cancelled receives are back before the peer looks at the request.
func (u *acks) cancelsFit() bool {
	return len(u.cancelling)+len(u.cancelled) <= maxCancelsOfRequest
}

// cut takes up to n ids off a list. The caller owns what it returns.
func cut(ids []uint64, n int) (head, rest []uint64) {
	if len(ids) <= n {
		return ids, nil
	}
	return slices.Clone(ids[:n]), ids[n:]
}

// cancelLater notes that the response to t is not wanted any more. The peer remembers
// maxRemembered ids, so older ones are dropped.
func (m *requests) cancelLater(t *Transfer) {
	if t.Attempt == 0 || t.Plain || t.Peer != m.incarnation {
		return
	}
	m.cancelled = append(m.cancelled, t.ID)
	if over := len(m.cancelled) - maxRemembered; over > 0 {
		m.cancelled = m.cancelled[over:]
	}
}

// flush sends what is due and no request carries.
func (m *requests) flush(now time.Time, acts []requestAction) []requestAction {
	if m.flushing || m.conn != connUp {
		return acts
	}
	a := requestAction{generation: m.generation}
	switch {
	case len(m.cancelled) > 0:
		a.kind = doCancel
		a.ids, m.cancelled = cut(m.cancelled, maxBatch)
		m.cancelling = a.ids
	case len(m.pending) == 0:
		return acts
	case m.closing || !now.Before(m.flushBy):
		a.kind, m.alone, m.aloneAt = doAck, true, now
		if a.ids, m.pending = cut(m.pending, maxBatch); len(m.pending) == 0 {
			m.pendingBytes = 0
		}
		m.acking = a.ids
	default:
		return m.wake(now, acts, m.flushBy)
	}
	m.flushing = true
	return append(acts, a)
}

// wake requests a tick at a time, unless one comes before.
func (m *requests) wake(now time.Time, acts []requestAction, at time.Time) []requestAction {
	if !m.wakeAt.IsZero() && !m.wakeAt.After(at) {
		return acts
	}
	m.wakeAt = at
	return append(acts, requestAction{kind: doWake, after: at.Sub(now)})
}

// flushed is the event that a doAck or doCancel has ended. What the peer has not confirmed
// is sent again, however often the connection breaks, while the peer is the same process:
// a cancel that is dropped is a value that stays kept until its step ends. A peer that
// answers hellos and loses all else is tried again at the pace of reach.
func (m *requests) flushed(now time.Time, a requestAction, err error) []requestAction {
	m.flushing, m.acking = false, nil
	if a.kind == doCancel {
		m.cancelling = nil
	} else if err != nil {
		m.alone = false
	}
	if !unconfirmed(err) || m.losses.add(err) { // confirmed, refused, or lost for good
		m.losses = losses{}
		m.served = m.served || a.generation == m.generation
		return m.flush(now, m.drain(now, nil))
	}
	if a.kind == doCancel {
		m.cancelled = append(m.cancelled, a.ids...)
	} else {
		m.ack(now, 0, a.ids...)
	}
	switch {
	case m.conn == connUp && a.generation == m.generation:
		return m.reach(now, err)
	case m.conn == connNone:
		return m.seek(now, nil)
	}
	return m.flush(now, m.drain(now, nil))
}

// unconfirmed reports whether err leaves open whether the peer has received a batch.
func unconfirmed(err error) bool {
	if _, lost := errors.AsType[*transport.LostError](err); lost {
		return true
	}
	switch status.CodeOf(err) {
	case status.Unavailable, status.DeadlineExceeded, status.Cancelled:
		return true
	}
	return false
}

// close is the event that no receive will begin any more.
func (m *requests) close(now time.Time) []requestAction {
	m.closing, m.callBy = true, now.Add(closeCall)
	return m.flush(now, nil)
}

// quiet reports whether nothing is under way and nothing is left to send. If something is
// left for a peer that was just lost, it waits for one failed hello, or for closeCall at
// most: otherwise closing peers would wait for each other. A peer that is there waits for an
// acknowledgement until its own deadline.
func (m *requests) quiet(now time.Time) bool {
	switch {
	case len(m.transfers) > 0 || m.flushing:
		return false
	case m.conn == connUp:
		return m.flushedAll()
	}
	return m.flushedAll() || m.tried || !now.Before(m.callBy)
}
