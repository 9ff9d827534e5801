package handshake

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Made is the event that the offer which Make asked for exists.
func (m *Machine) Made(now time.Time, id uint64, offer Offer) []Action {
	if m.phase != making || id != m.id || m.stale {
		if m.phase == making && id == m.id {
			m.phase = idle
		}
		m.emit(Action{Kind: Destroy, ID: id, Generation: offer.Generation, Err: status.Errorf(status.Cancelled, "the offer is no longer needed")})
		return m.done(now)
	}
	m.phase, m.own, m.deadline = offered, offer, now.Add(OfferLife)
	return m.done(now)
}

// MakeFailed is the event that the offer cannot be made.
func (m *Machine) MakeFailed(now time.Time, id uint64, err error) []Action {
	if m.phase != making || id != m.id {
		return nil
	}
	m.phase = idle
	m.refuseAll(status.Errorf(status.Unavailable, "%v has no queue pair for %v: %w", m.cfg.Self.Task, m.cfg.Peer, err))
	m.fail(now, err)
	return m.done(now)
}

// Connected is the event that the queue pairs of an offer are in RTS.
func (m *Machine) Connected(now time.Time, id uint64) []Action {
	if m.phase != connecting || id != m.id {
		return nil
	}
	m.phase = connected
	if !m.helloReceived {
		m.deadline = now.Add(HelloWait)
	}
	if m.answered {
		m.open()
	}
	return m.done(now)
}

// ConnectFailed is the event that the queue pairs of an offer cannot be brought to RTS,
// for example because there is no route. The peer gets FailedPrecondition. Codes of
// transient errors, and of errors that concern the peer itself, are kept.
func (m *Machine) ConnectFailed(now time.Time, id uint64, err error) []Action {
	if m.phase != connecting || id != m.id {
		return nil
	}
	code := status.CodeOf(err)
	switch code {
	case status.Unavailable, status.AlreadyExists, status.PermissionDenied, status.ResourceExhausted, status.Aborted:
	default:
		code = status.FailedPrecondition
	}
	err = status.Errorf(code, "%v cannot connect to %v: %w", m.own, m.peer, err)
	m.drop(err)
	m.refuseAll(err)
	m.fail(now, err)
	return m.done(now)
}

// Hello is the event that the peer's first message on the channel has arrived.
func (m *Machine) Hello(now time.Time, id uint64) []Action {
	if m.phase < connecting || m.phase > open || id != m.id || m.helloReceived {
		return nil
	}
	m.helloReceived, m.upSince, m.deadline = true, now, time.Time{}
	m.peerAhead, m.reason = false, nil
	m.maintain = m.maintain || !m.rested
	m.answered = true // the peer has connected to our offer
	if m.phase == connected {
		m.open()
	}
	return m.done(now)
}

// Broken is the event that a channel, or an offer, cannot be used any more. The next
// offer reports it to the peer by its higher generation.
func (m *Machine) Broken(now time.Time, id uint64, err error) []Action {
	if m.phase < offered || m.phase > open || id != m.id {
		return nil
	}
	if !m.upSince.IsZero() && now.Sub(m.upSince) >= Steady {
		m.failures = 0
	}
	if m.upSince.IsZero() {
		m.failed++
	}
	m.drop(err)
	m.reason = err
	m.backOff(now)
	return m.done(now)
}

// make starts the making of an offer. It returns false when all generations are used up.
func (m *Machine) make(generation uint64) bool {
	if generation > MaxGeneration {
		m.reason = status.Errorf(status.FailedPrecondition, "all generations up to %d with %v have been used; restart one of the two processes", uint64(MaxGeneration), m.cfg.Peer)
		m.maintain, m.verify = false, false
		return false
	}
	m.phase, m.gen, m.last, m.id, m.stale = making, generation, generation, m.base+generation, false
	m.emit(Action{Kind: Make, ID: m.id, Generation: generation})
	return true
}

func (m *Machine) connect(peer Offer) {
	m.phase, m.peer, m.deadline = connecting, peer, time.Time{}
	m.emit(Action{Kind: Connect, ID: m.id, Generation: m.gen, Offer: peer})
}

func (m *Machine) open() {
	m.phase = open
	m.emit(Action{Kind: Open, ID: m.id, Generation: m.gen})
}

// drop destroys the present offer or channel. A call that shows it does not count any more.
func (m *Machine) drop(err error) { m.destroy(err, false) }

// dropPeerLeft is drop of an offer or channel that the peer has left.
func (m *Machine) dropPeerLeft(err error) { m.destroy(err, true) }

func (m *Machine) destroy(err error, left bool) {
	m.emit(Action{Kind: Destroy, ID: m.id, Generation: m.gen, Err: err, Left: left})
	m.phase, m.own, m.peer = idle, Offer{}, Offer{}
	m.answered, m.helloReceived, m.call = false, false, 0
	m.deadline, m.upSince = time.Time{}, time.Time{}
}
