package delivery

import (
	"errors"
	"strings"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// requests is the requester's half of ARCHITECTURE.md section 6 for one peer, as a
// pure state machine. Its methods are the events. Each returns the actions to carry
// out, in order.
//
//	           receive             hello: reached
//	connNone ───────► connReaching ───────────────► connUp
//	    ▲               │      ▲                      │
//	    └───────────────┘      └──────────────────────┘
//	 not reached for peerTimeout:   an attempt was lost
//	 every transfer Unavailable
//
// A transfer waits or is sent. When its attempt was lost it waits again, and is sent
// with the next attempt number when the peer has been reached and is still the same
// process. When the peer is another process, the transfer ends with Aborted: what was
// sent to it has gone with the old process. A peer that is not Tryst gets one request:
// without ids it cannot tell a second request from a second receive.
//
// What comes of a hello is in hello.go, acknowledgements and cancels are in acks.go.
type requests struct {
	peer        string // its task name, for errors
	peerTimeout time.Duration
	ackBytes    int64 // bytes kept by the peer at which acks are flushed soon

	conn        connState
	generation  uint64    // counts how often the connection came up
	incarnation uint64    // of the peer; 0 before it was reached
	plain       bool      // the peer is not Tryst
	probing     bool      // a hello is under way
	asks        time.Time // when it was sent, or is to be
	unreached   time.Time
	briefs      briefs
	up          time.Time     // when the connection came up
	served      bool          // it has carried a response since
	pause       time.Duration // before the next hello
	why         error         // what the connection was lost for, while the peer is looked for
	tried       bool          // a hello has failed since the connection was lost, or before the first one
	hellos      losses        // of hellos since the connection was lost
	seeks       bool          // the peer is looked for although no transfer waits
	over        bool          // the peer has left the cluster: it is not looked for any more

	transfers map[uint64]*Transfer // by id
	fresh     []*Transfer          // wait for the connection, or for cancels to be confirmed
	again     []*Transfer          // sent before; wait for the connection or for their turn, in order
	resent    int                  // transfers sent again that are under way
	window    int                  // the most of them
	widen     time.Time            // when the window doubles; zero while none wait
	moved     bool                 // one was answered since widen was set

	acks
}

type connState uint8

const (
	connNone connState = iota
	connReaching
	connUp
)

// requestAction is one thing for the shell to do.
type requestAction struct {
	kind       requestActionKind
	t          *Transfer         // doSend, doDrop, doEnd
	attempt    transport.Attempt // doDrop: for the shell
	ids        []uint64          // doAck, doCancel
	generation uint64            // of the connection that ids are sent on
	after      time.Duration
	err        error
	unreached  bool // doEnd: since the peer is not reached, or refuses
}

type requestActionKind uint8

const (
	doHello  requestActionKind = iota // send Hello, after a pause; report by hello
	doSend                            // make an attempt of t; report by answered, lost, fallback or restarted
	doDrop                            // end the attempt of t that is under way; its outcome does not count
	doEnd                             // end t with err
	doAck                             // send acknowledgements; report by flushed
	doCancel                          // send cancels; report by flushed
	doWake                            // call tick after a delay; replaces an earlier one
)

func newRequests(peer string, peerTimeout time.Duration, ackBytes int64) *requests {
	return &requests{peer: peer, peerTimeout: peerTimeout, ackBytes: ackBytes, transfers: make(map[uint64]*Transfer)}
}

// receive is the event that a transfer begins.
func (m *requests) receive(now time.Time, t *Transfer) []requestAction {
	m.transfers[t.ID], t.asked = t, now
	m.requested(now)
	if m.conn == connUp {
		return m.first(nil, t)
	}
	m.fresh = append(m.fresh, t)
	if m.conn == connNone {
		return m.reach(now, nil)
	}
	return nil
}

// first makes the first attempt of t, if the cancels that the peer has not confirmed
// fit into its request.
func (m *requests) first(acts []requestAction, t *Transfer) []requestAction {
	if !m.cancelsFit() {
		m.fresh = append(m.fresh, t)
		return acts
	}
	return m.send(acts, t)
}

// send makes the next attempt of t.
func (m *requests) send(acts []requestAction, t *Transfer) []requestAction {
	t.Attempt++
	t.sent, t.generation, t.Peer, t.Plain = true, m.generation, m.incarnation, m.plain
	t.Acks, t.Cancels = m.takeAcks(), m.unconfirmed()
	if t.Attempt > 1 {
		m.resent++
	}
	return append(acts, requestAction{kind: doSend, t: t})
}

// reach begins to look for the peer. It does so at once, unless the connection has just
// come up and was lost before it carried anything: then a request itself may be what
// breaks it, and requests come no faster than hellos; the pause begins when the connection
// came up. Such a brief connection does not count: peers may connect for ever, and break at
// each content. why is what a connection was lost for just now, nil when there was none.
func (m *requests) reach(now time.Time, why error) []requestAction {
	after := time.Duration(0)
	if lived := now.Sub(m.up); m.conn == connUp && !m.served && lived < briefConn {
		after = max(0, m.pause-lived)
		m.pause = min(2*m.pause, helloPauseMax)
		m.briefs.add(now)
	} else {
		m.pause, m.briefs = helloPause, briefs{}
	}
	m.conn, m.unreached, m.why, m.tried, m.seeks = connReaching, now, why, false, false
	m.hellos = losses{}
	return m.probe(now, after)
}

func (m *requests) probe(now time.Time, after time.Duration) []requestAction {
	if m.probing {
		return nil
	}
	m.probing, m.asks = true, now.Add(after)
	return []requestAction{{kind: doHello, after: after}}
}

// endAllOld ends what only the peer's earlier process could have answered.
func (m *requests) endAllOld() []requestAction {
	var acts []requestAction
	var same []*Transfer
	for _, t := range m.again {
		switch {
		case t.over:
		case t.Peer != m.incarnation:
			acts = m.endOld(acts, t, m.why)
		default:
			same = append(same, t)
		}
	}
	m.again = same
	return acts
}

// endOld ends t, since the process that it was sent to is gone. If no request of t has reached
// that one, t is sent to the present process instead. So is a t whose key names the present
// process: the earlier one has nothing under such a key. why is what the connection to the
// earlier process was lost for.
func (m *requests) endOld(acts []requestAction, t *Transfer, why error) []requestAction {
	if (t.meant == m.incarnation || !t.reached) && !m.plain {
		t.Attempt, t.reached = 0, false
		return m.first(acts, t)
	}
	return m.end(acts, t, status.Errorf(status.Aborted,
		"%s restarted (incarnation %016x, before %016x); %w%s",
		m.peer, m.incarnation, t.Peer, transport.ErrProcessGone, becauseOf(why)).WithPayload(status.PayloadPossiblyRestarted, nil))
}

// end ends a transfer with an error.
func (m *requests) end(acts []requestAction, t *Transfer, err error) []requestAction {
	m.forget(t)
	return append(acts, requestAction{kind: doEnd, t: t, err: err})
}

func (m *requests) forget(t *Transfer) {
	delete(m.transfers, t.ID)
	t.over = true
}

// becauseOf is the end of an error text: what the connection was lost for, if it was. For
// verbs that has the queue pair and the completion status.
func becauseOf(why error) string {
	if why == nil {
		return ""
	}
	return "; before that its connection was lost: " + status.From(why).Message()
}

// firstSentence leaves the advice away that follows what a connection was lost for: it is about a
// device that does not reach its peer, and wrong for a peer that does not answer a call either. The
// log has all of it.
func firstSentence(text string) string {
	first, _, _ := strings.Cut(text, ". ")
	return first
}

// drain sends those that wait: all that were not sent before, and of the others as many
// at once as the window has. The window is maxResent. It doubles when that many wait in
// vain: the peer may send what they wait for only after those behind them.
func (m *requests) drain(now time.Time, acts []requestAction) []requestAction {
	if m.conn != connUp || !m.cancelsFit() {
		return acts // flushed calls drain again
	}
	for _, t := range m.fresh {
		if !t.over {
			acts = m.send(acts, t)
		}
	}
	m.fresh = nil
	for len(m.again) > 0 && m.resent < m.window {
		t := m.again[0]
		m.again = m.again[1:]
		if !t.over {
			acts = m.send(acts, t)
		}
	}
	if len(m.again) == 0 {
		m.again, m.widen = nil, time.Time{}
		return acts
	}
	if m.widen.IsZero() {
		m.widen, m.moved = now.Add(widenPause), false
		acts = m.wake(now, acts, m.widen)
	}
	return acts
}

// fail ends every transfer: the peer cannot be reached. Acks and cancels stay, in case
// it comes back.
func (m *requests) fail(err error) []requestAction {
	m.conn, m.fresh, m.again, m.briefs = connNone, nil, nil, briefs{}
	acts := make([]requestAction, 0, len(m.transfers))
	for _, t := range m.transfers {
		if t.sent { // on a connection that was not lost yet, and is of no use
			acts = append(acts, requestAction{kind: doDrop, t: t})
			m.returned(m.unreached, t)
		}
		m.cancelLater(t) // the peer may have matched it
		acts = m.end(acts, t, err)
		acts[len(acts)-1].unreached = true
	}
	return acts
}

// returned notes that no attempt of t counts any more. The ids that its request carried
// are acknowledged again. They stay in t: the connection may read them, since it does not
// know yet that the attempt is dropped.
func (m *requests) returned(now time.Time, t *Transfer) {
	t.sent = false
	if t.Attempt > 1 {
		m.resent--
	}
	if len(t.Acks) > 0 && t.Peer == m.incarnation {
		m.ack(now, 0, t.Acks...)
	}
}

// answered is the event that an attempt was answered with a value of size bytes, or with
// the peer's error; or that this side cannot take the response (ReceiverError). The peer is to
// take back a value that it still keeps. The transfer has ended with it.
func (m *requests) answered(now time.Time, t *Transfer, size int64, err error) []requestAction {
	m.forget(t)
	m.served, m.moved = true, true
	if err == nil {
		t.Acks = nil // the peer may have refused another request without reading it
	}
	m.returned(now, t)
	if _, own := errors.AsType[*transport.ReceiverError](err); own || t.leavesValue(err) {
		m.cancelLater(t)
	} else if !t.Plain && t.Peer == m.incarnation {
		m.ack(now, size, t.ID)
	}
	return m.flush(now, m.drain(now, nil))
}

// leavesValue reports whether the peer may keep a value for t although it answered the newest
// attempt with err. It may have refused that attempt before it looked for the value that an
// earlier attempt got. Or it has announced a value, and then refused the request for its content.
// DataLoss says that the value is gone, and is acknowledged.
func (t *Transfer) leavesValue(err error) bool {
	return err != nil && (t.Attempt > 1 || t.Partial.State != nil) && status.CodeOf(err) != status.DataLoss
}

// lost is the event that an attempt has ended without the peer's response. With progress
// it has brought a part of the value.
func (m *requests) lost(now time.Time, t *Transfer, progress bool, err error) []requestAction {
	t.reached = true
	return m.unanswered(now, t, progress, err)
}

func (m *requests) unanswered(now time.Time, t *Transfer, progress bool, err error) []requestAction {
	generation := t.generation
	m.returned(now, t)
	if progress {
		t.losses = losses{}
		m.served = m.served || t.generation == m.generation
	}
	var acts []requestAction
	switch {
	case t.Plain:
		acts = m.end(acts, t, status.From(err).WithPrefix(m.peer))
	case t.losses.add(err):
		m.cancelLater(t)
		acts = m.end(acts, t, endless(m.peer, "the receive", err))
	case m.conn == connUp && t.Peer != m.incarnation:
		acts = m.endOld(acts, t, err)
	default:
		m.again = append(m.again, t)
	}
	return append(acts, m.left(now, generation, err)...)
}

// unsent is the event that an attempt has ended before its request was sent.
func (m *requests) unsent(now time.Time, t *Transfer, err error) []requestAction {
	return m.unanswered(now, t, false, err)
}

// fallback is the event that an attempt has ended without a response because its route
// cannot carry it, and that there is another one. The peer may have received the request,
// so the transfer is sent again as one that was lost; the connection has lost nothing.
func (m *requests) fallback(now time.Time, t *Transfer) []requestAction {
	t.Fallback = true
	return m.move(now, t)
}

// move is the event that an attempt has ended without a response because a better route to the
// same process has come. The rest is as for fallback.
func (m *requests) move(now time.Time, t *Transfer) []requestAction {
	m.returned(now, t)
	t.reached = true
	if m.conn == connUp && t.Peer != m.incarnation {
		return m.endOld(nil, t, nil)
	}
	m.again = append(m.again, t)
	return m.flush(now, m.drain(now, nil))
}

// restarted is the event that the peer answered an attempt with the error that it is
// another process than the one that it was sent to. With reached an earlier request of the
// attempt was answered by that one.
func (m *requests) restarted(now time.Time, t *Transfer, reached bool, err error) []requestAction {
	m.returned(now, t)
	var acts []requestAction
	if t.reached || reached {
		// Without the mark of OtherProcess: the receiver may send this error on as its own.
		acts = m.end(acts, t, status.Errorf(status.Aborted, "%s: %s; %w", m.peer, status.From(err).Message(), transport.ErrProcessGone).
			WithPayload(status.PayloadPossiblyRestarted, nil))
	} else {
		// No process has received it: nothing is lost if it is sent to the new process.
		t.Attempt = 0
		if m.conn == connUp && t.generation != m.generation {
			return m.first(nil, t) // the new process is known already
		}
		m.fresh = append(m.fresh, t)
	}
	return append(acts, m.left(now, t.generation, err)...)
}

// left looks for the peer when the present connection has lost a transfer. When an
// earlier one has, others may be sent in its place.
func (m *requests) left(now time.Time, generation uint64, why error) []requestAction {
	switch {
	case m.conn != connUp:
		return nil // the peer is being looked for
	case generation != m.generation:
		return m.flush(now, m.drain(now, nil))
	case len(m.transfers) == 0 && m.flushedAll():
		m.conn, m.unreached, m.tried = connNone, now, false // until the next receive
		return nil
	}
	return m.reach(now, why)
}

// cancel is the event that the receiver no longer wants the value.
func (m *requests) cancel(now time.Time, t *Transfer, why error) []requestAction {
	if t.over {
		return nil
	}
	m.cancelLater(t)
	var acts []requestAction
	if t.sent {
		m.returned(now, t)
		acts = append(acts, requestAction{kind: doDrop, t: t})
	}
	acts = m.end(acts, t, why)
	return m.flush(now, m.drain(now, acts))
}

// tick is the event that the delay of a doWake has passed.
func (m *requests) tick(now time.Time) []requestAction {
	m.wakeAt = time.Time{}
	var acts []requestAction
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
	return m.flush(now, acts)
}
