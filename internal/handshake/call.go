package handshake

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// callIfDue calls the peer when it is time. Without an offer to show it makes one first.
func (m *Machine) callIfDue(now time.Time) {
	channelDue := m.maintain && !now.Before(m.nextCall) && (m.phase == idle || m.phase == offered)
	verifyDue := m.verify && !now.Before(m.verifyAt())
	if !m.cfg.Callable || m.call != 0 || !channelDue && !verifyDue {
		return
	}
	switch m.phase {
	case idle:
		m.make(m.next())
	case offered, connected, open:
		m.calls++
		m.call, m.callAfterConnect, m.callEnds = m.calls, m.phase != offered, now.Add(CallTimeout)
		shown := m.own
		if m.checking = m.verify && m.met && m.phase == open; m.checking {
			shown = Introduction(m.cfg.Self) // each process answers that, also one that takes another route
		}
		if m.verify {
			m.verify, m.met, m.lastVerify = false, false, now
		}
		if shown.For = m.accepted; m.accepted == 0 {
			m.lastToAny = m.gen
		}
		m.emit(Action{Kind: Call, Call: m.call, Offer: shown})
	case making, connecting, stopped:
	}
}

// verifyAt is the earliest time of a call that verifies the peer's incarnation. A call
// shows an offer; when none exists it waits as long as the making of one does.
func (m *Machine) verifyAt() time.Time {
	wait := CheckEvery
	if m.met { // the checks that a request causes are not made again by themselves
		wait = min(CheckEvery<<m.failedChecks, MaxBackoff)
	}
	at := m.lastVerify.Add(wait)
	if m.phase == idle && at.Before(m.nextCall) {
		return m.nextCall
	}
	return at
}

// Calls reports whether the end of that call would be an event: the call shows the present
// offer.
func (m *Machine) Calls(call uint64) bool { return m.phase != stopped && m.call != 0 && call == m.call }

// CallDone is the event that a call has ended, with the peer's offer or with an error.
func (m *Machine) CallDone(now time.Time, call uint64, offer Offer, err error) []Action {
	if !m.Calls(call) {
		return nil // the offer that the call showed is gone
	}
	m.call = 0
	if err == nil {
		err = m.validate(offer)
	}
	if err == nil {
		err = m.handleResponse(now, offer)
	}
	m.called(now, err)
	return m.done(now)
}

// called takes note of how a call has ended. One that was to verify the peer, which has a channel, is made again: nothing
// else may cause it.
func (m *Machine) called(now time.Time, err error) {
	switch {
	case err == nil:
		m.failedChecks = 0
	case m.phase != open:
		if m.phase == offered && isOfferRefused(err) {
			m.drop(err) // the next offer has a higher generation: for it the peer leaves its old channel
		}
		m.fail(now, err)
	case m.checking:
		m.verify, m.met, m.failedChecks = true, true, min(m.failedChecks+1, 16)
	}
}

// handleResponse takes the response to a call that showed our present offer.
func (m *Machine) handleResponse(now time.Time, offer Offer) error {
	if offer.Incarnation != m.accepted {
		if m.phase >= connecting && !m.callAfterConnect {
			// The response may be older than the process that we are connected to.
			m.verify = true
			return nil
		}
		// The process at the peer's configured address is the peer.
		if m.accepted != 0 {
			m.replacePeer(offer.Incarnation, status.Errorf(status.Aborted, "%v has restarted: its incarnation is %016x now", m.cfg.Peer, offer.Incarnation))
			m.nextCall = now
			return nil
		}
		m.accepted = offer.Incarnation
	}
	switch {
	case offer.Generation > m.highest()+m.maxStep:
		return m.tooFarError(offer)
	case offer.IsIntroduction():
		if m.phase != open {
			if m.gen > m.maxStep { // the peer knows no generation with this process, and refuses so high a one
				m.lastToAny, m.floors = 0, [maxFloors]floor{}
				m.restartGenerations(status.Errorf(status.Aborted, "%v has no generation near %d", m.cfg.Peer, m.gen))
			}
			return status.Errorf(status.Unavailable, "%v has introduced itself: %w", m.cfg.Peer, ErrNotKnown)
		}
	case offer.Generation < m.gen:
		return status.Errorf(status.FailedPrecondition, "%v answers generation %d with the lower generation %d", m.cfg.Peer, m.gen, offer.Generation)
	case offer.Generation > m.gen:
		m.dropPeerLeft(status.Errorf(status.Aborted, "%v is already at generation %d", m.cfg.Peer, offer.Generation))
		m.make(m.above(offer.Generation))
		m.nextCall = now
		if m.peerAhead {
			m.backOff(now)
		}
		m.peerAhead = true
	case m.phase == offered:
		m.answered = true
		m.connect(offer)
	case !m.peer.Equal(offer):
		err := status.Errorf(status.FailedPrecondition, "%v shows two different offers of generation %d", m.cfg.Peer, m.gen)
		m.drop(err)
		return err
	default:
		m.answered = true
		if m.phase == connected {
			m.open()
		}
	}
	return nil
}

// fail records a failure of the handshake. It is tried again later.
func (m *Machine) fail(now time.Time, err error) {
	m.reason = err
	if !m.helloReceived { // after HELLO the channel is up, and only a call has failed
		m.failed++
	}
	if m.failures == 0 {
		m.failures = 1 // only a broken channel is retried at once
	}
	if WillStay(m.cfg.Self.Task, err) {
		m.failures = max(m.failures, maxDoublings)
	}
	m.backOff(now)
}

// backOff sets the time of the next call: at once after the first break, then with a wait
// that doubles.
func (m *Machine) backOff(now time.Time) {
	var wait time.Duration
	if m.failures > 0 {
		wait = min(m.cfg.Backoff<<(m.failures-1), MaxBackoff)
		wait += time.Duration(m.cfg.Jitter() * float64(wait) / 4)
	}
	m.failures = min(m.failures+1, maxDoublings)
	m.nextCall = now.Add(wait)
}
