package handshake

import "github.com/tryst-rdma/tryst/status"

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

// Met is the event that another route has a channel to a process of the peer. A machine that has
// accepted none accepts this one: another process that calls is then verified first.
func (m *Machine) Met(incarnation uint64) {
	if m.accepted == 0 {
		m.accepted = incarnation
	}
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
