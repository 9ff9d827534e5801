package delivery

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/transport"
)

// The events of a requester's machine by id, for tests that play many: an event of an
// attempt that is not under way any more does nothing, as the shell sees to it.

func (m *requests) recvID(now time.Time, id, meant uint64) []requestAction {
	return m.receive(now, &Transfer{Receive: transport.Receive{Request: transport.Request{ID: id}}, meant: meant})
}

// sent finds a transfer whose attempt is under way.
func (m *requests) underWay(id uint64, attempt uint32) *Transfer {
	if t := m.transfers[id]; t != nil && t.sent && t.Attempt == attempt {
		return t
	}
	return nil
}

func (m *requests) answeredID(now time.Time, id uint64, size int64, err error) []requestAction {
	if t := m.transfers[id]; t != nil && t.sent {
		return m.answered(now, t, size, err)
	}
	return nil
}

func (m *requests) lostID(now time.Time, id uint64, attempt uint32, progress bool, err error) []requestAction {
	if t := m.underWay(id, attempt); t != nil {
		return m.lost(now, t, progress, err)
	}
	return nil
}

func (m *requests) fallbackID(now time.Time, id uint64, attempt uint32) []requestAction {
	if t := m.underWay(id, attempt); t != nil {
		return m.fallback(now, t)
	}
	return nil
}

func (m *requests) moveID(now time.Time, id uint64, attempt uint32) []requestAction {
	if t := m.underWay(id, attempt); t != nil {
		return m.move(now, t)
	}
	return nil
}

func (m *requests) unsentID(now time.Time, id uint64, attempt uint32, err error) []requestAction {
	if t := m.underWay(id, attempt); t != nil {
		return m.unsent(now, t, err)
	}
	return nil
}

func (m *requests) restartedID(now time.Time, id uint64, attempt uint32, reached bool, err error) []requestAction {
	if t := m.underWay(id, attempt); t != nil {
		return m.restarted(now, t, reached, err)
	}
	return nil
}

func (m *requests) cancelID(now time.Time, id uint64, why error) []requestAction {
	if t := m.transfers[id]; t != nil {
		return m.cancel(now, t, why)
	}
	return nil
}

// callID is a call of a simulation.
type callID uint64

// Reply implements Replier: a simulation looks at the actions instead.
func (callID) Reply(uint64, uint32, transport.Response) {}

// callOf is the call that a doReply is for.
func callOf(a *responseAction) callID {
	id, _ := a.to.to.(callID)
	return id
}

// detachID is detach by a call alone.
func (t *responses) detachID(now time.Time, id callID) []responseAction {
	for _, k := range t.requesters {
		for _, e := range k.entries {
			for _, c := range e.calls {
				if c.to == transport.Replier(id) {
					return t.detach(now, transport.Process{Name: k.name, Incarnation: k.incarnation}, c)
				}
			}
		}
	}
	return nil
}

// simAct is a requestAction as a simulation keeps it: with what its transfer had then.
type simAct struct {
	kind            requestActionKind
	id              uint64
	attempt         uint32
	peer            uint64
	plain, fallback bool
	generation      uint64
	ids             []uint64 // that go with a request, or alone
	cancels         []uint64
	after           time.Duration
	err             error
}

func simActs(acts []requestAction) []simAct {
	var out []simAct
	for _, a := range acts {
		s := simAct{kind: a.kind, ids: slices.Clone(a.ids), generation: a.generation, after: a.after, err: a.err}
		if t := a.t; t != nil {
			s.id, s.attempt, s.peer, s.plain, s.fallback = t.ID, t.Attempt, t.Peer, t.Plain, t.Fallback
			s.ids, s.cancels = slices.Clone(t.Acks), slices.Clone(t.Cancels)
		}
		out = append(out, s)
	}
	return out
}

// batch is the action of a batch.
func (s simAct) batch() requestAction {
	return requestAction{kind: s.kind, ids: s.ids, generation: s.generation}
}
