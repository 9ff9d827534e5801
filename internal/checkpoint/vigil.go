package checkpoint

import "time"

// vigil decides whether the puller of a replaced or ended version is still there, as a value: events and the
// time go in, an action comes out. heard is a count that grows when anything comes on the puller's
// connection, so a slow one is not taken for one that is stopped. It is looked at every lookEvery.
//
//	current ── replaced ─► asked ── answered ─► rested ── aliveEvery ─► asked
//	                         └ nothing heard for aliveWithin ─► deaf: its pull ends, its connection is closed
//	any ── gone ─► leaving ── nothing heard for aliveWithin, or leaveWithin has passed ─► deaf
//
// A puller that takes no notices is not asked: gRPC's keepalive finds it.
type vigil struct {
	notices bool
	state   vigilState
	since   time.Time // of the state
	heard   uint64    // at the last look
	last    time.Time // when heard was another number, or since
	look    time.Time // the last one
}

type vigilState uint8

const (
	vigilCurrent vigilState = iota // nothing is asked while its version is the current one
	vigilAsked
	vigilRested
	vigilLeaving // it was notified that the version is gone
	vigilDeaf
)

// vigilAct is what to do about a puller.
type vigilAct uint8

const (
	vigilNothing vigilAct = iota
	vigilAsk              // send the notice alive
	vigilEnd              // it does not answer: end its pull, and close its connection
)

// enter changes the state.
func (v *vigil) enter(state vigilState, now time.Time, heard uint64) {
	v.state, v.since, v.heard, v.last, v.look = state, now, heard, now, now
}

// replaced is the event that another version took the place of the puller's.
func (v *vigil) replaced(now time.Time, heard uint64) vigilAct {
	if !v.notices || v.state != vigilCurrent {
		return vigilNothing
	}
	v.enter(vigilAsked, now, heard)
	return vigilAsk
}

// answered is the event that it called Alive.
func (v *vigil) answered(now time.Time) {
	if v.state == vigilAsked {
		v.state, v.since = vigilRested, now
	}
}

// gone is the event that its version is not here any more.
func (v *vigil) gone(now time.Time, heard uint64) {
	if v.notices && v.state != vigilDeaf {
		v.enter(vigilLeaving, now, heard)
	}
}

// wake returns when tick is to be called; zero for never.
func (v *vigil) wake() time.Time {
	switch v.state {
	case vigilAsked, vigilLeaving:
		return v.look.Add(lookEvery)
	case vigilRested:
		return v.since.Add(aliveEvery)
	case vigilCurrent, vigilDeaf:
	}
	return time.Time{}
}

// tick is the event that time has passed.
func (v *vigil) tick(now time.Time, heard uint64) vigilAct {
	if at := v.wake(); at.IsZero() || now.Before(at) {
		return vigilNothing
	}
	if v.state == vigilRested {
		v.enter(vigilAsked, now, heard)
		return vigilAsk
	}
	if v.look = now; heard != v.heard {
		v.heard, v.last = heard, now
	}
	silent := now.Sub(v.last) >= aliveWithin
	if silent || v.state == vigilLeaving && now.Sub(v.since) >= leaveWithin {
		v.state = vigilDeaf
		return vigilEnd
	}
	return vigilNothing
}
