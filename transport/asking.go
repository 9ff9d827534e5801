package transport

import (
	"errors"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// asking is the receiver's half of ARCHITECTURE.md section 6 for one peer, as a
// pure state machine. Its methods are the events; each returns the actions to
// carry out, in order, outside every lock. They are good until the next event.
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
//
// What the peer has to know beside requests is in asking_say.go.
type asking struct {
	peer        string // its task name, for errors
	peerTimeout time.Duration
	muchKept    int64 // bytes kept for finished ids at which they are said soon

	link        linkState
	generation  uint64 // of the link: counts how often it came up
	incarnation uint64 // of the peer; 0 when never reached
	plain       bool   // the peer is not Tryst
	reaching    bool   // a hello is under way
	unreached   time.Time
	up          time.Time     // when the link came up
	served      bool          // and whether it has carried an answer since
	pause       time.Duration // before the next hello
	why         error         // what the link was lost for, while the peer is looked for
	tried       bool          // it was not reached since the link was lost, or before the first one
	hellos      losses        // of hellos since the link was lost
	seeks       bool          // it is looked for although nobody asks

	receives map[uint64]*receive
	fresh    []*receive // wait for the link, or for cancels to be confirmed
	again    []*receive // asked before; wait for the link or for their turn, in order
	reasked  int        // receives asked again that are on the wire
	window   int        // how many of them may be
	widen    time.Time  // when more may be; zero while none wait
	moved    bool       // one was answered since widen was set

	unsaid

	// For use again: actions that were carried out, and receives that are in no
	// list any more.
	acts []askAction
	free []*receive
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
	meant      uint64 // incarnation of the process that the key names
	attempt    uint32 // the last one made; 0 when nobody can have taken it
	asked      bool   // on the wire now
	generation uint64 // of the link when it was asked
	peer       uint64 // incarnation of the peer that was asked
	plain      bool   // and whether that one is not Tryst
	elsewhere  bool   // its wire has given it back: it is asked another way
	losses     losses // of its attempts
	riders     []uint64
}

// newReceive takes one that is free, or makes one.
func (m *asking) newReceive(id, meant uint64) *receive {
	var r *receive
	if n := len(m.free); n > 0 {
		r, m.free = m.free[n-1], m.free[:n-1]
	} else {
		r = new(receive)
	}
	*r = receive{id: id, meant: meant, riders: r.riders[:0]}
	return r
}

// receive finds a receive that has not ended; nil when there is none.
func (m *asking) receive(id uint64) *receive {
	r := m.receives[id]
	return r
}

// recycle keeps a receive to which nothing points any more.
func (m *asking) recycle(r *receive) {
	if len(m.free) < maxFree {
		m.free = append(m.free, r)
	}
}

// keep keeps the memory of actions for the next event.
func (m *asking) keep(acts []askAction) []askAction {
	if cap(acts) <= maxFree {
		m.acts = acts[:0]
	}
	return acts
}

// askAction is one thing for the shell to do.
type askAction struct {
	kind       askActionKind
	id         uint64
	attempt    uint32
	peer       uint64   // incarnation of the peer that is asked
	plain      bool     // and whether it is not Tryst
	elsewhere  bool     // not in the way that gave it back
	generation uint64   // of the link that something is said on
	finished   []uint64 // ids that ride on the request, until it is answered; or that are said
	cancelled  []uint64 // ids that go with the request
	after      time.Duration
	err        error
}

type askActionKind uint8

const (
	askHello  askActionKind = iota // reach the peer, after a pause; report by hello
	askSend                        // make an attempt; report by answered, lost, elsewhere or restarted
	askDrop                        // end the attempt that is under way; its report is passed over
	askEnd                         // end the receive with err
	askFinish                      // say finished; report by said
	askCancel                      // say cancelled; report by said
	askWake                        // call tick, after a delay; takes the place of an earlier one
)

func newAsking(peer string, peerTimeout time.Duration, muchKept int64) *asking {
	return &asking{peer: peer, peerTimeout: peerTimeout, muchKept: muchKept, receives: make(map[uint64]*receive)}
}

// recv is the event that a receive begins. meant is the incarnation in its key.
func (m *asking) recv(now time.Time, id, meant uint64) []askAction {
	r := m.newReceive(id, meant)
	m.receives[id] = r
	if m.link == linkUp {
		return m.keep(m.first(m.acts, r))
	}
	m.fresh = append(m.fresh, r)
	if m.link == linkNone {
		return m.reach(now, nil)
	}
	return nil
}

// first makes the first attempt of r, when the cancels that the peer has not confirmed go
// with it.
func (m *asking) first(acts []askAction, r *receive) []askAction {
	if !m.ridesCancelled() {
		m.fresh = append(m.fresh, r)
		return acts
	}
	return m.ask(acts, r)
}

// ask makes the next attempt of r.
func (m *asking) ask(acts []askAction, r *receive) []askAction {
	r.attempt++
	r.asked, r.generation, r.peer, r.plain = true, m.generation, m.incarnation, m.plain
	r.riders = m.ride(r.riders)
	if r.attempt > 1 {
		m.reasked++
	}
	return append(acts, askAction{
		kind: askSend, id: r.id, attempt: r.attempt, peer: m.incarnation, plain: m.plain,
		elsewhere: r.elsewhere, finished: r.riders, cancelled: m.unconfirmed(),
	})
}

// reach begins to look for the peer: at once, unless the link has just come up
// and was lost without having carried anything. Then it is the requests that it
// does not bear, and they come again no faster than hellos. why is what a link was lost
// for just now, nil when there was none.
func (m *asking) reach(now time.Time, why error) []askAction {
	after := time.Duration(0)
	if m.link == linkUp && !m.served && now.Sub(m.up) < helloPauseMax {
		after = m.pause
		m.pause = min(2*m.pause, helloPauseMax)
	} else {
		m.pause = helloPause
	}
	m.link, m.unreached, m.why, m.tried, m.seeks = linkReaching, now, why, false, false
	m.hellos = losses{}
	return m.hail(after)
}

func (m *asking) hail(after time.Duration) []askAction {
	if m.reaching {
		return nil
	}
	m.reaching = true
	return []askAction{{kind: askHello, after: after}}
}

// Peer is what a hello found out.
type Peer struct {
	// Tryst says that the peer keeps answers, so that a receive can be asked
	// again. Without it the other fields are zero.
	Tryst bool
	// Incarnation is the random number that its process chose at its start.
	Incarnation uint64
}

// hello is the event that a hello has ended. An error that is neither of the connection
// nor a LostError is the peer's own word and ends what waits. A peer that has been Tryst is
// believed to be that still until it has said the opposite maxSameLosses times.
func (m *asking) hello(now time.Time, p Peer, err error) []askAction {
	m.reaching = false
	if m.link == linkUp || m.link == linkNone && !m.seeks {
		return nil
	}
	if err == nil && !p.Tryst && m.incarnation != 0 && !m.hellos.add(errNotTryst) {
		err = &LostError{errNotTryst}
	} else if final := m.refused(err); final != nil {
		m.tried, m.seeks = true, false
		return m.fail(final)
	}
	if err != nil {
		m.tried = true
		waited := now.Sub(m.unreached)
		if m.link == linkNone {
			return m.sought(now, nil)
		}
		if waited >= m.peerTimeout {
			return m.sought(now, m.fail(status.Errorf(status.Unavailable,
				"%s was not reached for %v: %s%s", m.peer, m.peerTimeout, status.From(err).Message(), becauseOf(m.why))))
		}
		pause := min(m.pause, m.peerTimeout-waited)
		m.pause = min(2*m.pause, helloPauseMax)
		return m.hail(pause)
	}
	if p.Incarnation != m.incarnation {
		m.unsaid = unsaid{saying: m.saying, wakeAt: m.wakeAt, closing: m.closing, callBy: m.callBy}
	}
	m.link, m.incarnation, m.plain, m.seeks = linkUp, p.Incarnation, !p.Tryst, false
	m.generation++
	m.up, m.served, m.window, m.widen = now, false, maxReasked, time.Time{}
	acts := m.endAllOld()
	m.why = nil
	return m.say(now, m.drain(now, acts))
}

var errNotTryst = status.New(status.Unimplemented, "the peer is not Tryst any more")

// refused returns the error that the receives end with after a hello that ended with err;
// nil when another one is to be made.
func (m *asking) refused(err error) error {
	if _, lost := errors.AsType[*LostError](err); lost {
		if m.hellos.add(err) {
			return endless(m.peer, "the request for its name", err)
		}
		return nil
	}
	switch status.CodeOf(err) {
	case status.OK, status.Unavailable, status.DeadlineExceeded, status.Cancelled, status.Unknown:
		return nil
	}
	return status.From(err).WithPrefix(m.peer)
}

// sought looks on for a peer that could not be reached while nobody asks it, for as long
// as it may keep values that were cancelled: they go back to their keys when it is told.
func (m *asking) sought(now time.Time, acts []askAction) []askAction {
	m.seeks = len(m.cancelled) > 0 && now.Sub(m.unreached) < giveUpAfter
	if !m.seeks {
		return acts
	}
	return append(acts, m.hail(helloPauseMax)...)
}

// endAllOld ends what only the peer's earlier process could have answered.
func (m *asking) endAllOld() []askAction {
	var acts []askAction
	same := m.again[:0]
	for _, r := range m.again {
		switch {
		case m.receive(r.id) != r: // ended meanwhile
		case r.peer != m.incarnation:
			acts = m.endOld(acts, r, m.why)
		default:
			same = append(same, r)
		}
	}
	clear(m.again[len(same):])
	m.again = same
	return acts
}

// endOld ends r, since the process that it asked is gone; or asks the present
// one, when it is that one which the key names: the earlier process has nothing
// under such a key, and r was asked of it only before its end was known. why is what
// the link to the earlier one was lost for.
func (m *asking) endOld(acts []askAction, r *receive, why error) []askAction {
	if r.meant == m.incarnation && !m.plain {
		r.attempt = 0
		return m.first(acts, r)
	}
	delete(m.receives, r.id)
	return append(acts, askAction{kind: askEnd, id: r.id, err: status.Errorf(status.Aborted,
		"%s restarted (incarnation %016x, before %016x); what it had sent is lost%s",
		m.peer, m.incarnation, r.peer, becauseOf(why)).WithPayload(status.PayloadPossiblyRestarted, nil)})
}

// becauseOf is the end of an error's words: what the link was lost for, if it was. For
// verbs that has the queue pair and the completion status.
func becauseOf(why error) string {
	if why == nil {
		return ""
	}
	return "; before that its link was lost: " + status.From(why).Message()
}

// drain asks those that wait: all that were not asked before, and of the others as many
// at once as the window has. The window is maxReasked, and doubles when that many wait in
// vain: what they wait for may be sent only when those behind them have been answered.
func (m *asking) drain(now time.Time, acts []askAction) []askAction {
	if m.link != linkUp || !m.ridesCancelled() {
		return acts // told comes back here
	}
	for _, r := range m.fresh {
		if m.receive(r.id) == r { // else it has ended meanwhile
			acts = m.ask(acts, r)
		}
	}
	m.fresh = nil
	for len(m.again) > 0 && m.reasked < m.window {
		r := m.again[0]
		m.again[0] = nil
		m.again = m.again[1:]
		if m.receive(r.id) == r { // else it has ended meanwhile
			acts = m.ask(acts, r)
		}
	}
	if len(m.again) == 0 {
		m.again, m.widen = nil, time.Time{}
		return acts
	}
	if m.widen.IsZero() {
		m.widen, m.moved = now.Add(reaskPause), false
		acts = m.wake(now, acts, m.widen)
	}
	return acts
}

// fail ends every receive: the peer cannot be reached. What has not been said
// stays to be said, should it come back.
func (m *asking) fail(err error) []askAction {
	m.link, m.fresh, m.again = linkNone, nil, nil
	acts := make([]askAction, 0, len(m.receives))
	for id, r := range m.receives {
		if r.asked { // on a wire that was not lost yet, and is of no use
			acts = append(acts, askAction{kind: askDrop, id: id, attempt: r.attempt})
			m.off(m.unreached, r)
		}
		m.unwanted(r) // it may have been matched over there
		acts = append(acts, askAction{kind: askEnd, id: id, err: err})
	}
	clear(m.receives)
	return acts
}

// off takes r from the wire. The ids that rode on its request are said again.
func (m *asking) off(now time.Time, r *receive) {
	r.asked = false
	if r.attempt > 1 {
		m.reasked--
	}
	if len(r.riders) > 0 && r.peer == m.incarnation {
		m.has(now, 0, r.riders...)
	}
	r.riders = r.riders[:0]
}

// answered is the event that an attempt was answered with a value of size bytes, or with
// the peer's error; or that this side cannot take the answer (ReceiverError): then the peer
// is to take it back. The receive has ended with it, unless it had before: then the shell
// releases the answer.
func (m *asking) answered(now time.Time, id uint64, size int64, err error) []askAction {
	r := m.receive(id)
	if r == nil {
		return nil
	}
	delete(m.receives, id)
	m.served, m.moved = true, true
	asked := r.asked
	if asked {
		if err == nil {
			r.riders = r.riders[:0] // a request that was refused may have been refused unread
		}
		m.off(now, r)
	}
	if _, own := errors.AsType[*ReceiverError](err); own {
		m.unwanted(r)
	} else if !r.plain && r.peer == m.incarnation {
		m.has(now, size, id)
	}
	if asked {
		m.recycle(r) // who is asked waits in no list
	}
	return m.keep(m.say(now, m.drain(now, m.acts)))
}

// lost is the event that an attempt has ended without the peer's answer. With progress it
// has brought a part of the value.
func (m *asking) lost(now time.Time, id uint64, attempt uint32, progress bool, err error) []askAction {
	r := m.receive(id)
	if r == nil || r.attempt != attempt || !r.asked {
		return nil
	}
	generation := r.generation
	m.off(now, r)
	if progress {
		r.losses = losses{}
	}
	var acts []askAction
	switch {
	case !r.plain && r.losses.add(err):
		delete(m.receives, id)
		m.unwanted(r)
		acts = append(acts, askAction{kind: askEnd, id: id, err: endless(m.peer, "the receive", err)})
	case r.plain:
		delete(m.receives, id)
		acts = append(acts, askAction{kind: askEnd, id: id, err: status.From(err).WithPrefix(m.peer)})
	case m.link == linkUp && r.peer != m.incarnation:
		acts = m.endOld(acts, r, err)
	default:
		m.again = append(m.again, r)
	}
	return append(acts, m.left(now, generation, err)...)
}

// elsewhere is the event that an attempt has ended without an answer because its
// wire has no room for the value or the request, and has another way to the
// peer. The peer may have taken the request, so the receive is asked again that
// way as one that was lost; the link has lost nothing.
func (m *asking) elsewhere(now time.Time, id uint64, attempt uint32) []askAction {
	r := m.receive(id)
	if r == nil || r.attempt != attempt || !r.asked {
		return nil
	}
	m.off(now, r)
	r.elsewhere = true
	if m.link == linkUp && r.peer != m.incarnation {
		return m.endOld(nil, r, nil)
	}
	m.again = append(m.again, r)
	return m.say(now, m.drain(now, nil))
}

// restarted is the event that the peer answered an attempt with the word that
// it is another process than the one asked.
func (m *asking) restarted(now time.Time, id uint64, attempt uint32, err error) []askAction {
	r := m.receive(id)
	if r == nil || r.attempt != attempt || !r.asked {
		return nil
	}
	m.off(now, r)
	var acts []askAction
	if r.attempt > 1 {
		delete(m.receives, id)
		acts = append(acts, askAction{kind: askEnd, id: id, err: status.From(err).WithPrefix(m.peer)})
	} else {
		// Nobody took it: nothing is lost if the new process is asked.
		r.attempt = 0
		if m.link == linkUp && r.generation != m.generation {
			return m.first(nil, r) // it is known already
		}
		m.fresh = append(m.fresh, r)
	}
	return append(acts, m.left(now, r.generation, err)...)
}

// left looks for the peer when a receive has left the present link, which is lost
// then for that reason. When it has left an earlier one, the turn of others may have
// come.
func (m *asking) left(now time.Time, generation uint64, why error) []askAction {
	switch {
	case m.link != linkUp:
		return nil // the peer is being looked for
	case generation != m.generation:
		return m.say(now, m.drain(now, nil))
	case len(m.receives) == 0 && m.said():
		m.link, m.unreached, m.tried = linkNone, now, false // until somebody asks
		return nil
	}
	return m.reach(now, why)
}

// cancel is the event that the receiver no longer wants the value.
func (m *asking) cancel(now time.Time, id uint64, why error) []askAction {
	r := m.receive(id)
	if r == nil {
		return nil
	}
	delete(m.receives, id)
	m.unwanted(r)
	var acts []askAction
	if r.asked {
		m.off(now, r)
		acts = append(acts, askAction{kind: askDrop, id: id, attempt: r.attempt})
	}
	acts = append(acts, askAction{kind: askEnd, id: id, err: why})
	return m.say(now, m.drain(now, acts))
}

// tick is the event that an askWake's delay has passed.
func (m *asking) tick(now time.Time) []askAction {
	m.wakeAt = time.Time{}
	var acts []askAction
	switch {
	case m.widen.IsZero():
	case now.Before(m.widen):
		acts = m.wake(now, acts, m.widen)
	default:
		m.widen = time.Time{}
		if !m.moved {
			m.window *= 2
		}
		acts = m.drain(now, acts)
	}
	return m.say(now, acts)
}
