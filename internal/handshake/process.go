package handshake

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// accepts reports whether requests of that process are valid. It accepts the first
// process of the peer, and any while a peer without an address has no open channel.
func (m *Machine) accepts(incarnation uint64) bool {
	switch {
	case m.accepted == incarnation:
		return true
	case m.accepted == 0:
		m.accepted = incarnation
		return true
	case m.cfg.Callable || m.phase == open:
		return false
	}
	// There is no address to verify it at, and no open channel to lose.
	m.replacePeer(incarnation, status.Errorf(status.Aborted, "another process of %v has called", m.cfg.Peer))
	return true
}

// Addressed is the event that the peer, which had no address, has one: it can be called. The process that has called in
// the peer's name is verified now. Only routes that have a channel, or make one, do that: another route would make a
// channel for it.
func (m *Machine) Addressed(now time.Time) []Action {
	if !m.cfg.Callable && !m.ended {
		m.cfg.Callable, m.verify = true, m.accepted != 0 && m.phase >= making && m.phase <= open
	}
	return m.done(now)
}

// Met is the event that another route has a channel to a process of the peer, or that it has answered at the peer's
// address. A machine that has accepted none accepts this one: another process that calls is then verified first. One with
// a channel to another process, or that makes one, finds out which of the two is the peer.
func (m *Machine) Met(now time.Time, incarnation uint64) []Action {
	switch {
	case m.accepted == 0:
		m.accepted = incarnation
	case m.accepted != incarnation && m.phase >= making && m.phase <= open:
		m.verify, m.met = true, true
	}
	return m.done(now)
}

// replacePeer accepts another process of the peer. Generations start again, and what was
// shown to the earlier process is dropped.
func (m *Machine) replacePeer(incarnation uint64, why error) {
	m.earlier = append(m.earlier[max(0, len(m.earlier)+1-maxEarlier):len(m.earlier):len(m.earlier)], earlierProcess{m.accepted, m.last})
	m.restartGenerations(why)
	m.accepted = incarnation
	for _, e := range m.earlier {
		if e.incarnation == incarnation {
			m.last = max(m.last, e.last)
		}
	}
}

// restartGenerations lets generations start again, above those that were shown while no
// process was accepted: any process of the peer may have seen them.
func (m *Machine) restartGenerations(why error) {
	switch {
	case m.phase == making:
		m.stale = true
	case m.phase >= offered && m.phase <= open:
		m.dropPeerLeft(why)
	}
	m.base += m.last
	m.last, m.peerAhead = m.lastToAny, false
}
