package transport

import (
	"errors"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// unsaid is what the peer has to know: which answers we have, and which receives
// we gave up. Cancels are said at once. Finished ids wait a little for a request
// to ride on, less when the peer keeps much for them. One message is under way at a
// time; more ids gather meanwhile. What the peer did not take is sent again.
type unsaid struct {
	finished      []uint64  // answers that we have
	finishedBytes int64     // their size
	finishedBy    time.Time // when they are said alone
	cancelled     []uint64  // receives that we gave up
	cancelling    []uint64  // likewise: an askCancel is under way for them
	saying        bool      // an askFinish or askCancel is under way
	wakeAt        time.Time // when a tick is due; zero when none is
	closing       bool      // nothing will come to ride on
	callBy        time.Time // until when a lost peer is to be reached then
	losses        losses    // of what was said
}

// said reports whether there is nothing to say.
func (u *unsaid) said() bool { return len(u.finished) == 0 && len(u.cancelled) == 0 }

// has notes answers of size bytes that we have.
func (m *asking) has(now time.Time, size int64, ids ...uint64) {
	u := &m.unsaid
	if len(u.finished) == 0 {
		u.finishedBy = now.Add(finishDelay)
	}
	u.finished = append(u.finished, ids...)
	u.finishedBytes += size
	if u.finishedBytes >= m.muchKept {
		if soon := now.Add(finishSoon); u.finishedBy.After(soon) {
			u.finishedBy = soon
		}
	}
}

// ride takes the finished ids that go with a request, into memory of its receive.
func (u *unsaid) ride(ids []uint64) []uint64 {
	n := min(len(u.finished), maxRiders)
	ids = append(ids[:0], u.finished[:n]...)
	u.finished = slices.Delete(u.finished, 0, n)
	if len(u.finished) == 0 {
		u.finishedBytes = 0
	}
	return ids
}

// unconfirmed returns the cancelled ids that the peer has not confirmed.
func (u *unsaid) unconfirmed() []uint64 {
	if len(u.cancelling)+len(u.cancelled) == 0 {
		return nil
	}
	return slices.Concat(u.cancelling, u.cancelled)
}

// ridesCancelled reports whether these go with a request. What it asks for comes in order
// then: the values of the cancelled receives are back before the request is looked at.
func (u *unsaid) ridesCancelled() bool {
	return len(u.cancelling)+len(u.cancelled) <= maxCancelRiders
}

// cut takes up to n ids off a list. What it returns is nobody else's.
func cut(ids []uint64, n int) (head, rest []uint64) {
	if len(ids) <= n {
		return ids, nil
	}
	return slices.Clone(ids[:n]), ids[n:]
}

// unwanted notes that the answer to r is not wanted any more. More ids than a
// peer remembers are not worth keeping.
func (m *asking) unwanted(r *receive) {
	if r.attempt == 0 || r.plain || r.peer != m.incarnation {
		return
	}
	m.cancelled = append(m.cancelled, r.id)
	if over := len(m.cancelled) - maxRemembered; over > 0 {
		m.cancelled = m.cancelled[over:]
	}
}

// say tells the peer what nothing carried.
func (m *asking) say(now time.Time, acts []askAction) []askAction {
	if m.saying || m.link != linkUp {
		return acts
	}
	a := askAction{generation: m.generation}
	switch {
	case len(m.cancelled) > 0:
		a.kind = askCancel
		a.finished, m.cancelled = cut(m.cancelled, maxSaid)
		m.cancelling = a.finished
	case len(m.finished) == 0:
		return acts
	case m.closing || !now.Before(m.finishedBy):
		a.kind = askFinish
		if a.finished, m.finished = cut(m.finished, maxSaid); len(m.finished) == 0 {
			m.finishedBytes = 0
		}
	default:
		return m.wake(now, acts, m.finishedBy)
	}
	m.saying = true
	return append(acts, a)
}

// wake asks for a tick at a time, unless one comes before.
func (m *asking) wake(now time.Time, acts []askAction, at time.Time) []askAction {
	if !m.wakeAt.IsZero() && !m.wakeAt.After(at) {
		return acts
	}
	m.wakeAt = at
	return append(acts, askAction{kind: askWake, after: at.Sub(now)})
}

// told is the event that what an askFinish or askCancel said was taken, or not.
// What it did not take is sent again, however often the connection breaks, while the peer is
// the same process: a cancel that is dropped is a value that stays kept for ever. A peer
// that takes hellos and loses all else is asked again at the pace of reach.
func (m *asking) told(now time.Time, a askAction, err error) []askAction {
	m.saying = false
	if a.kind == askCancel {
		m.cancelling = nil
	}
	if !untold(err) || m.losses.add(err) { // taken, refused, or lost for good
		m.losses = losses{}
		m.served = m.served || a.generation == m.generation
		return m.say(now, m.drain(now, nil))
	}
	if a.kind == askCancel {
		m.cancelled = append(m.cancelled, a.finished...)
	} else {
		m.has(now, 0, a.finished...)
	}
	switch {
	case m.link == linkUp && a.generation == m.generation:
		return m.reach(now, err)
	case m.link == linkNone:
		return m.sought(now, nil)
	}
	return m.say(now, m.drain(now, nil))
}

// untold reports whether err leaves open whether the peer took what was said.
func untold(err error) bool {
	if _, lost := errors.AsType[*LostError](err); lost {
		return true
	}
	switch status.CodeOf(err) {
	case status.Unavailable, status.DeadlineExceeded, status.Cancelled:
		return true
	}
	return false
}

// close is the event that no receive will begin any more.
func (m *asking) close(now time.Time) []askAction {
	m.closing, m.callBy = true, now.Add(closeCall)
	return m.say(now, nil)
}

// quiet reports whether nothing is under way and nothing is left to say. To a peer that was
// just lost there is, if a value is to go back to its key there, until it was called in
// vain once, or for closeCall: processes that end together would else wait for each other.
func (m *asking) quiet(now time.Time) bool {
	switch {
	case len(m.receives) > 0 || m.saying:
		return false
	case m.link == linkUp:
		return m.said()
	}
	return len(m.cancelled) == 0 || m.tried || !now.Before(m.callBy)
}
