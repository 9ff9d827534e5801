package handshake

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// Request is the event that a call of the peer has arrived, which shows offer. The caller
// has checked that the peer may use this name (Identity.Check) and meant this task.
// Respond or Refuse with the same id follows, in this or a later event.
func (m *Machine) Request(now time.Time, id uint64, offer Offer) []Action {
	switch err := m.validate(offer); {
	case m.phase == stopped:
		m.refuse(id, m.reason)
	case err != nil:
		// A call to the peer finds out the same, after each family of addresses was tried. Only
		// without one this is the reason.
		if (m.phase == idle || m.phase == offered) && (!m.cfg.Callable || !m.maintain) {
			m.reason = err
		}
		m.refuse(id, err)
	case offer.IsIntroduction():
		m.introduce(id) // the peer asks for the inventory
	case offer.For != 0 && offer.For != m.cfg.Self.Incarnation:
		m.introduce(id) // the offer was made for an earlier process of this task
	case !m.accepts(offer.Incarnation):
		m.verify = true
		m.introduce(id)
	case m.highest() == 0 && offer.Generation > m.maxStep:
		m.introduce(id) // the generation continues those with an earlier process of this task
	case offer.Generation > m.highest()+m.maxStep:
		m.refuse(id, m.tooFarError(offer))
	case len(m.pending) == maxPending:
		m.refuse(id, status.Errorf(status.ResourceExhausted, "%d requests of %v already wait for a queue pair", maxPending, offer.Task))
	default:
		m.pending = append(m.pending, request{id, offer})
	}
	return m.done(now)
}

// answerPending answers requests in order, until one has to wait for an offer to be made
// or connected.
func (m *Machine) answerPending() {
	for len(m.pending) > 0 && m.phase != making && m.phase != connecting {
		r := m.pending[0]
		switch shown := r.offer.Generation; {
		case r.offer.Incarnation != m.accepted:
			m.verify = true
			m.introduce(r.id)
		case m.phase == idle:
			if !m.make(m.above(shown)) {
				m.refuse(r.id, m.reason)
				break
			}
			continue
		case shown > m.gen:
			m.dropPeerLeft(status.Errorf(status.Aborted, "%v has left this channel for generation %d", m.cfg.Peer, shown))
			continue
		case shown < m.gen:
			m.respond(r.id, m.own)
		case m.phase == offered:
			m.connect(r.offer)
			continue
		case m.peer.Equal(r.offer):
			m.respond(r.id, m.own)
		default:
			m.refuse(r.id, status.Errorf(status.Aborted, "%v has already shown another offer of generation %d", r.offer.Task, shown))
		}
		m.pending = m.pending[1:]
	}
	if len(m.pending) == 0 {
		m.pending = nil
	}
}

// validate checks what any offer of the peer must satisfy.
func (m *Machine) validate(o Offer) error {
	self := m.cfg.Self
	switch err := Validate(o); {
	case o.Task == self.Task:
		return status.Errorf(status.InvalidArgument, "%v is the name of this process: it cannot be its own peer", o.Task)
	case err != nil:
		return err
	case o.Task != m.cfg.Peer:
		return status.Errorf(status.FailedPrecondition, "the offer is of %v instead of %v: check the addresses of the cluster", o.Task, m.cfg.Peer)
	case o.Incarnation == self.Incarnation:
		return status.Errorf(status.FailedPrecondition, "%v shows the incarnation of this process, %016x", o.Task, o.Incarnation)
	case o.IsIntroduction():
		return nil
	}
	return Compatible(self, o)
}

// tooFarError is the error of an offer whose generation is too far above the last one.
func (m *Machine) tooFarError(o Offer) error {
	return status.Errorf(status.FailedPrecondition, "%v shows generation %d; it may be at most %d above the last one, %d", o.Task, o.Generation, m.maxStep, m.highest())
}

func (m *Machine) refuse(id uint64, err error) { m.emit(Action{Kind: Refuse, Request: id, Err: err}) }

func (m *Machine) respond(id uint64, offer Offer) {
	m.emit(Action{Kind: Respond, Request: id, Offer: offer})
}

// introduce responds with an introduction (Offer.IsIntroduction).
func (m *Machine) introduce(id uint64) {
	m.respond(id, Introduction(m.cfg.Self))
}

func (m *Machine) refuseAll(err error) {
	for _, r := range m.pending {
		m.refuse(r.id, err)
	}
	m.pending = nil
}
