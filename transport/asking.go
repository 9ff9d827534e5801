package transport

import (
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// asking is the receiver's half of ARCHITECTURE.md section 6 for one peer, as a
// pure state machine. Its methods are the events; each returns the actions to
// carry out, in order, outside every lock.
//
//	           recv                hello: reached
//	linkNone ───────► linkReaching ───────────────► linkUp
//	    ▲               │      ▲                      │
//	    └───────────────┘      └──────────────────────┘
//	  no wire for peerTimeout:      an attempt was lost
//	  every receive Unavailable
//
// A receive is queued or asked. One whose attempt was lost is queued again, and
// asked with the next attempt when the peer has been reached and is still the
// same process; when it is another one, the receive ends with Aborted, since
// what was sent to it is gone with the old process. A peer that is not Tryst
// is asked once: it has no ids, so nobody could tell a second request from a
// second receive.
type asking struct {
	peer        string // its task name, for errors
	peerTimeout time.Duration

	link        linkState
	generation  uint64 // of the link: counts how often it came up
	incarnation uint64 // of the peer; 0 when never reached
	plain       bool   // the peer is not Tryst
	unreached   time.Time
	pause       time.Duration
	reaching    bool // a hello is under way

	receives map[uint64]*receive
	queue    []*receive // wait for the link or for their turn, in order
	reasked  int        // receives asked again that are on the wire

	finished      []uint64 // answers that we have, not yet said
	finishedBytes int64
	finishedSince time.Time
	cancelled     []uint64 // receives that we gave up, not yet said
	saying        bool     // a Finish or Cancel is under way
	closing       bool     // nothing will come to ride on
}

type linkState uint8

const (
	linkNone linkState = iota
	linkReaching
	linkUp
)

// receive is one receive from the peer.
type receive struct {
	id         uint64
	attempt    uint32 // the last one made; 0 when never asked
	asked      bool   // on the wire now
	generation uint64 // of the link when it was asked
	riders     []uint64
}

// askAction is one thing for the shell to do.
type askAction struct {
	kind     askActionKind
	id       uint64
	attempt  uint32
	peer     uint64   // incarnation of the peer that is asked
	finished []uint64 // ids that ride on the request, or that are said
	after    time.Duration
	err      error
}

type askActionKind uint8

const (
	askHello  askActionKind = iota // reach the peer, after a pause; report by hello
	askSend                        // make an attempt; report by answered, lost or restarted
	askDrop                        // end the attempt that is under way; its report is passed over
	askEnd                         // end the receive with err
	askFinish                      // say finished; report by said
	askCancel                      // say cancelled; report by said
	askWake                        // call tick, after a delay
)

func newAsking(peer string, peerTimeout time.Duration) *asking {
	return &asking{peer: peer, peerTimeout: peerTimeout, receives: make(map[uint64]*receive)}
}

// recv is the event that a receive begins.
func (m *asking) recv(now time.Time, id uint64) []askAction {
	r := &receive{id: id}
	m.receives[id] = r
	if m.link == linkUp {
		return m.ask(nil, r)
	}
	m.queue = append(m.queue, r)
	if m.link == linkNone {
		return m.reach(now)
	}
	return nil
}

// ask makes the next attempt of r.
func (m *asking) ask(acts []askAction, r *receive) []askAction {
	r.attempt++
	r.asked, r.generation = true, m.generation
	if r.attempt > 1 {
		m.reasked++
	}
	if n := min(len(m.finished), maxRiders); n > 0 {
		r.riders = slices.Clone(m.finished[:n])
		m.finished = append(m.finished[:0], m.finished[n:]...)
		if len(m.finished) == 0 {
			m.finishedBytes = 0
		}
	}
	return append(acts, askAction{kind: askSend, id: r.id, attempt: r.attempt, peer: m.incarnation, finished: r.riders})
}

// reach begins to look for the peer.
func (m *asking) reach(now time.Time) []askAction {
	m.link, m.unreached, m.pause = linkReaching, now, helloPause
	return m.hail(nil, 0)
}

func (m *asking) hail(acts []askAction, after time.Duration) []askAction {
	if m.reaching {
		return acts
	}
	m.reaching = true
	return append(acts, askAction{kind: askHello, after: after})
}

// Peer is what a hello found out.
type Peer struct {
	// Tryst says that the peer keeps answers, so that a receive can be asked
	// again. Without it the other fields are zero.
	Tryst bool
	// Incarnation is the random number that its process chose at its start.
	Incarnation uint64
}

// hello is the event that a hello has ended. An error that is no Unavailable,
// Cancelled or DeadlineExceeded is the peer's own word and ends what waits.
func (m *asking) hello(now time.Time, p Peer, err error) []askAction {
	m.reaching = false
	if m.link != linkReaching {
		return nil
	}
	if err != nil {
		switch status.CodeOf(err) {
		case status.Unavailable, status.DeadlineExceeded, status.Cancelled, status.Unknown:
		default:
			return m.fail(status.From(err).WithPrefix(m.peer))
		}
		if waited := now.Sub(m.unreached); waited >= m.peerTimeout {
			return m.fail(status.Errorf(status.Unavailable,
				"%s was not reached for %v: %s", m.peer, m.peerTimeout, status.From(err).Message()))
		}
		after := min(m.pause, m.peerTimeout-now.Sub(m.unreached))
		m.pause = min(2*m.pause, helloPauseMax)
		return m.hail(nil, after)
	}
	var acts []askAction
	if m.incarnation != 0 && p.Incarnation != m.incarnation {
		acts = m.forgetOld(p.Incarnation)
	}
	m.link, m.incarnation, m.plain = linkUp, p.Incarnation, !p.Tryst
	m.generation++
	return m.say(now, m.drain(acts))
}

// forgetOld ends what only the peer's earlier process could have answered.
func (m *asking) forgetOld(incarnation uint64) []askAction {
	var acts []askAction
	m.queue = slices.DeleteFunc(m.queue, func(r *receive) bool {
		if r.attempt == 0 {
			return false
		}
		if m.receives[r.id] == r {
			delete(m.receives, r.id)
			acts = append(acts, askAction{kind: askEnd, id: r.id, err: status.Errorf(status.Aborted,
				"%s restarted (incarnation %016x, before %016x); what it had sent is lost",
				m.peer, incarnation, m.incarnation).WithPayload(status.PayloadPossiblyRestarted, nil)})
		}
		return true
	})
	m.finished, m.finishedBytes, m.cancelled = nil, 0, nil
	return acts
}

// drain asks what is queued, those asked before at most maxReasked at once.
func (m *asking) drain(acts []askAction) []askAction {
	rest := m.queue[:0]
	for _, r := range m.queue {
		switch {
		case m.receives[r.id] != r: // ended meanwhile
		case r.attempt > 0 && m.reasked >= maxReasked:
			rest = append(rest, r)
		default:
			acts = m.ask(acts, r)
		}
	}
	clear(m.queue[len(rest):])
	m.queue = rest
	return acts
}

// fail ends every receive: the peer cannot be reached. What has not been said
// stays to be said, should it come back.
func (m *asking) fail(err error) []askAction {
	m.link, m.queue = linkNone, nil
	acts := make([]askAction, 0, len(m.receives))
	for id, r := range m.receives {
		if r.asked { // on a wire that was not lost yet, and is of no use
			acts = append(acts, askAction{kind: askDrop, id: id, attempt: r.attempt})
			m.off(r)
		}
		if r.attempt > 0 && !m.plain {
			m.cancelled = append(m.cancelled, id) // it may have been matched over there
		}
		acts = append(acts, askAction{kind: askEnd, id: id, err: err})
	}
	clear(m.receives)
	return acts
}

// off takes r from the wire without an answer; the ids that rode on it are
// said again.
func (m *asking) off(r *receive) {
	r.asked = false
	if r.attempt > 1 {
		m.reasked--
	}
	m.finished = append(m.finished, r.riders...)
	r.riders = nil
}

// answered is the event that an attempt was answered with a value of size
// bytes, or with the peer's error. It reports whether the receive ends with it;
// if not, it has ended already and the answer is to be released.
func (m *asking) answered(now time.Time, id uint64, size int64) (deliver bool, acts []askAction) {
	r := m.receives[id]
	if r == nil {
		return false, nil
	}
	delete(m.receives, id)
	if r.asked {
		r.riders = nil // they came with a request that was answered
		m.off(r)
	}
	if !m.plain {
		m.finished = append(m.finished, id)
		m.finishedBytes += size
		if len(m.finished) == 1 {
			m.finishedSince = now
			acts = append(acts, askAction{kind: askWake, after: finishDelay})
		}
		if m.finishedBytes >= finishAtOnce {
			acts = m.say(now, acts)
		}
	}
	if m.link == linkUp && len(m.queue) > 0 {
		acts = m.drain(acts)
	}
	return true, acts
}

// lost is the event that an attempt has ended without an answer because its
// connection was lost.
func (m *asking) lost(now time.Time, id uint64, attempt uint32, err error) []askAction {
	r := m.receives[id]
	if r == nil || r.attempt != attempt || !r.asked {
		return nil
	}
	current := r.generation == m.generation && m.link == linkUp
	m.off(r)
	if m.plain {
		delete(m.receives, id)
		return []askAction{{kind: askEnd, id: id, err: err}}
	}
	return m.again(now, r, current)
}

// again queues r. broken says that the link it was on is the present one.
func (m *asking) again(now time.Time, r *receive, broken bool) []askAction {
	m.queue = append(m.queue, r)
	switch {
	case m.link == linkNone, broken:
		return m.reach(now)
	case m.link == linkUp: // lost with an earlier link; this one is good
		return m.drain(nil)
	}
	return nil
}

// restarted is the event that the peer answered an attempt with the word that
// it is another process than the one asked.
func (m *asking) restarted(now time.Time, id uint64, attempt uint32, err error) []askAction {
	r := m.receives[id]
	if r == nil || r.attempt != attempt || !r.asked {
		return nil
	}
	current := r.generation == m.generation && m.link == linkUp
	m.off(r)
	if r.attempt > 1 {
		delete(m.receives, id)
		return []askAction{{kind: askEnd, id: id, err: err}}
	}
	// Nobody took it yet: nothing is lost if the new process is asked.
	r.attempt = 0
	return m.again(now, r, current)
}

// cancel is the event that the receiver no longer wants the value.
func (m *asking) cancel(now time.Time, id uint64, why error) []askAction {
	r := m.receives[id]
	if r == nil {
		return nil
	}
	delete(m.receives, id)
	var acts []askAction
	if r.attempt > 0 && !m.plain {
		m.cancelled = append(m.cancelled, id)
	}
	if r.asked {
		m.off(r)
		acts = append(acts, askAction{kind: askDrop, id: id, attempt: r.attempt})
	}
	acts = append(acts, askAction{kind: askEnd, id: id, err: why})
	if m.link == linkUp && len(m.queue) > 0 {
		acts = m.drain(acts)
	}
	return m.say(now, acts)
}

// say tells the peer what it has to know and nothing carried. Cancels go at
// once, and one message at a time: more ids gather meanwhile.
func (m *asking) say(now time.Time, acts []askAction) []askAction {
	if m.saying || m.link != linkUp || m.plain {
		return acts
	}
	switch {
	case len(m.cancelled) > 0:
		m.saying = true
		acts = append(acts, askAction{kind: askCancel, finished: m.cancelled})
		m.cancelled = nil
	case len(m.finished) > 0 && (m.closing || m.finishedBytes >= finishAtOnce || now.Sub(m.finishedSince) >= finishDelay):
		m.saying = true
		acts = append(acts, askAction{kind: askFinish, finished: m.finished})
		m.finished, m.finishedBytes = nil, 0
	case len(m.finished) > 0:
		acts = append(acts, askAction{kind: askWake, after: finishDelay - now.Sub(m.finishedSince)})
	}
	return acts
}

// said is the event that what an askFinish or askCancel said was taken, or not.
func (m *asking) said(now time.Time, a askAction, err error) []askAction {
	m.saying = false
	switch status.CodeOf(err) {
	case status.Unavailable, status.DeadlineExceeded, status.Cancelled:
	default: // taken, or refused for good
		return m.say(now, nil)
	}
	if a.kind == askCancel {
		m.cancelled = append(m.cancelled, a.finished...)
	} else {
		m.finished = append(m.finished, a.finished...)
		m.finishedSince = now
	}
	if m.link == linkUp {
		return m.reach(now)
	}
	return nil
}

// tick is the event that an askWake's delay has passed.
func (m *asking) tick(now time.Time) []askAction { return m.say(now, nil) }

// close is the event that no receive will begin any more.
func (m *asking) close(now time.Time) []askAction {
	m.closing = true
	return m.say(now, nil)
}

// quiet reports whether nothing is under way and nothing is left to say.
func (m *asking) quiet() bool {
	return len(m.receives) == 0 && !m.saying &&
		(m.link != linkUp || len(m.finished) == 0 && len(m.cancelled) == 0)
}
