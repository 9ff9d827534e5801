package tcp

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// patience is how long a requester waits for the peer's process. Signs of life are frames
// that its reader causes, and bytes that its kernel still takes: a stopped process takes as
// many as fit its buffers. Nothing is measured while nothing is outstanding.
type patience struct {
	unit    time.Duration // of a retry; 0: no limit
	retries time.Duration // retries after the first attempt

	since  time.Duration // of the last sign of life
	probed bool          // a Probe was sent since then

	connectBy time.Duration // deadline for the connection
	up        bool          // the connection has come up
	lost      bool          // it has ended since, or will not come up
}

func (r *requester) configure(a *verbs.RTSAttr) {
	r.unit, r.retries = verbs.TimeoutDuration(a.Timeout), time.Duration(a.Retry)
}

// alive notes a sign of life.
func (p *patience) alive(now time.Duration) {
	p.since, p.probed = max(p.since, now), false
}

// allowed returns the longest time without a sign of life from the peer.
func (p *patience) allowed() time.Duration {
	switch {
	case p.lost:
		return p.retries * p.unit // nothing can come, so the least that retries take
	case !p.up:
		return min(max(connectFactor*(p.retries+1)*p.unit, minPatience), connectTime)
	}
	return max(patienceFactor*(p.retries+1)*p.unit, minPatience)
}

// deadline returns the time of the next call of expire; false if none is needed.
func (m *machine) deadline() (at time.Duration, ok bool) {
	r := &m.req
	if m.IsUp() {
		if !r.up {
			at, ok = r.connectBy, true
		}
		if m.resp.refused {
			at, ok = earlier(at, ok, m.resp.refusedAt+minPatience)
		}
	}
	if m.State() != verbs.StateRTS || m.Idle() {
		return at, ok
	}
	if r.rnrWaiting && !r.probeDue && r.rnrUntil > 0 {
		at, ok = earlier(at, ok, r.rnrUntil)
	}
	if r.unit > 0 {
		limit := r.allowed()
		if r.up && !r.lost && !r.probed {
			limit /= probeShare
		}
		at, ok = earlier(at, ok, r.since+limit)
	}
	return at, ok
}

// needsTimer reports whether a frame may have brought a deadline forward: an RNR, or a request that was
// refused.
func (m *machine) needsTimer() bool { return m.req.rnrWaiting || m.resp.refused }

func earlier(at time.Duration, ok bool, other time.Duration) (time.Duration, bool) {
	if ok && at < other {
		return at, true
	}
	return other, true
}

// expire does what is due: it asks for a sign of life, or fails the queue pair.
func (m *machine) expire(now time.Duration) {
	r := &m.req
	m.at = now
	switch {
	case !m.IsUp():
		return
	case !r.up && now >= r.connectBy, m.resp.refused && now >= m.resp.refusedAt+minPatience:
		m.Fail(verbs.StatusRetryExceeded)
		return
	case m.State() != verbs.StateRTS || m.Idle():
		return
	}
	if r.rnrWaiting && !r.probeDue && r.rnrUntil > 0 && now >= r.rnrUntil {
		r.probeDue, r.rnrUntil = true, 0
	}
	if r.unit == 0 {
		return
	}
	switch limit := r.allowed(); {
	case now >= r.since+limit:
		m.Fail(verbs.StatusRetryExceeded)
	case r.up && !r.lost && !r.probed && now >= r.since+limit/probeShare:
		r.probed, r.probeDue = true, true
	}
}
