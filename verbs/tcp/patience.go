package tcp

import (
	"time"

	"github.com/tryst-rdma/tryst/verbs"
)

// patience is how long a requester waits for the peer's process. Signs of life are frames
// that its reader causes, and bytes that its kernel still takes: a stopped process takes as
// many as fit its buffers. Nothing is measured while nothing is outstanding. A queue pair with a
// connection fails only after a Probe that was not answered while this process ran.
type patience struct {
	unit    time.Duration // of a retry; 0: no limit
	retries time.Duration // retries after the first attempt

	since  time.Duration // of the last sign of life
	probed bool          // a Probe was sent since then
	answer time.Duration // deadline for the answer to the Probe

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
		at, ok = earlier(at, ok, r.due())
	}
	return at, ok
}

// connected reports whether a sign of life can come.
func (p *patience) connected() bool { return p.up && !p.lost }

// due returns when the next Probe is sent, or when the patience ends.
func (p *patience) due() time.Duration {
	limit := p.allowed()
	switch {
	case !p.connected():
		return p.since + limit
	case !p.probed:
		return p.since + limit/probeShare
	}
	return p.answer
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
	limit, due := r.allowed(), r.due()
	wait := limit / probeShare
	switch {
	case now < due:
	case r.connected() && (!r.probed || now >= due+wait): // so late that this process rested, and has read nothing meanwhile
		r.probed, r.probeDue, r.answer = true, true, now+limit-wait
	default:
		m.Fail(verbs.StatusRetryExceeded)
	}
}
