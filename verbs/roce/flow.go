package roce

import (
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/udp"
	"github.com/tryst-rdma/tryst/verbs/roce/internal/wire"
)

// flow is all that goes from one sending socket to one peer. Its queue pairs share
// a congestion window, and take turns (deficit round robin: Shreedhar and
// Varghese, 1996): each may send a quantum in its turn, and keeps what it did not
// use while it has more. A turn that has no room in the window goes on when there is.
// How long a packet is, is known when it was made: what the last one goes beyond is
// taken off the next turn.
type flow struct {
	station *station
	key     flowKey
	remote  remote
	peer    *peer
	sender  sender
	to      *udp.Destination
	start   time.Time // the beginning of the flow's time
	// readCost is what READs count in the window, in readCostOne-ths of what writes do.
	readCost uint64
	users    int // queue pairs; guarded by the station's lock

	mu        sync.Mutex // guards what follows
	path      wire.Path
	window    window
	flight    uint64
	ready     []*qp // those with something to send, whose turn is next first
	urgent    int   // of them, those that need no room in the window for it
	limited   bool  // the window was full at some time since the last turns
	unsettled bool  // the flow is in its station's list
	answers   answers
	quantum   int
	trust     trust
	out       burst
	packet    packet
	told      bool // that packets cannot be sent
	toldAt    time.Duration
}

func newFlow(s *station, key flowKey, r remote, p *peer, mtu uint64) *flow {
	f := &flow{
		station: s, key: key, remote: r, peer: p, sender: s.senders[key.sender], to: udp.NewDestination(r.at), start: time.Now(), quantum: quantum,
	}
	f.window, f.answers = newWindow(r.buffer, mtu), newAnswers(r.buffer, mtu)
	// What is written fills the peer's buffer, and what is asked for this side's: where
	// that is smaller, as much counts for more.
	own := newWindow(uint64(s.receiver.Buffer()), mtu) //nolint:gosec // a size
	f.readCost = max(readCostOne, readCostOne*f.window.whole/own.whole)
	f.path = wire.NewPath(f.sender.Addr(), r.at)
	if r.roce {
		f.trust.state = trusted
	}
	return f
}

// kick sends what a queue pair has to send.
func (q *qp) kick() {
	if f := q.enlist(false); f != nil {
		f.transmit()
		f.mu.Unlock()
	}
}

// settle does that after a timer or the end: the flow learns first what came of what
// was sent.
func (q *qp) settle() {
	if f := q.enlist(true); f != nil {
		f.transmit()
		f.mu.Unlock()
	}
}

// enlist lets a queue pair have turns, if it has something to send, and tells the flow
// the news of it. It returns the flow locked, or nil.
func (q *qp) enlist(news bool) *flow {
	f := q.flow.Load()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	if q.flow.Load() != f { // it has left meanwhile
		f.mu.Unlock()
		return nil
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.pd.dev.now()
	f.window.fit(q.machine.mtu)
	f.window.share(uint64(f.peer.flows.Load())) //nolint:gosec // not negative
	if news {
		n := q.machine.seen()
		f.limited = f.limited || f.flight+f.least() > f.window.size
		f.countLocked(q)
		if n.timeouts > 1 && f.flight > 0 {
			n.timeouts = 0 // others get through: it is the peer's queue pair that is silent, not the way
		}
		f.window.take(f.at(q, now), n, f.limited)
		f.trust.learn(q, n)
	}
	f.countLocked(q)
	f.answers.take(f.at(q, now), int64(f.peer.flows.Load()), q.machine.takeAsked())
	f.urgesLocked(q)
	switch more := q.hasMore(); {
	case more && !q.queued:
		q.queued = true
		f.ready = append(f.ready, q)
	case !more && q.queued: // it broke, or rests: nobody waits for it
		f.dropLocked(slices.Index(f.ready, q))
	}
	return f
}

// at is the flow's time: its queue pairs may be of several openings of a device,
// each with a beginning of its own.
func (f *flow) at(q *qp, now time.Duration) time.Duration { return now + q.pd.dev.start.Sub(f.start) }

// countLocked takes a queue pair's flight into the flow's. One that is silent has no
// part in the window: its peer may be gone, and the others would wait for it until it
// gives up.
func (f *flow) countLocked(q *qp) {
	flight := q.machine.req.flight
	if q.machine.silent() {
		flight = 0
	}
	f.flight += flight - q.counted
	q.counted = flight
}

// hasMore says whether a queue pair would send, were there room. One that is silent
// waits for the answer to its only packet.
func (q *qp) hasMore() bool {
	m := &q.machine
	return m.owes() || m.req.wants() && (!m.silent() || m.req.flight == 0)
}

// urgesLocked looks whether a queue pair has something to send that needs no room.
func (f *flow) urgesLocked(q *qp) {
	urges := q.urges()
	switch {
	case urges && !q.urgent:
		f.urgent++
	case !urges && q.urgent:
		f.urgent--
	}
	q.urgent = urges
}

// urges says whether a queue pair would send in a full window: what its responder
// owes, or the only packet of one that is silent.
func (q *qp) urges() bool {
	m := &q.machine
	return m.owes() || m.silent() && m.req.flight == 0 && m.req.wants()
}

// leave takes a queue pair out for good.
func (f *flow) leave(q *qp) {
	f.mu.Lock()
	f.flight -= q.counted
	q.counted = 0
	if q.urgent {
		f.urgent--
		q.urgent = false
	}
	if q.queued {
		f.dropLocked(slices.Index(f.ready, q))
	}
	f.trust.forget(q)
	f.transmit() // there is room for others
	f.mu.Unlock()
	f.station.release(f)
}

// transmit gives turns until nobody can send. Packets that are whole in the burst, as
// acknowledgements are, go out together, whichever queue pairs they are of.
func (f *flow) transmit() {
	f.limited = false
	f.out.begin()
	for again := true; again; {
		f.turns()
		again = f.urge()
	}
	f.send()
}

// turns gives turns until the window is full, or nobody can send.
func (f *flow) turns() {
	var cut *qp // its turn was, and is the next
	for idle := 0; idle < len(f.ready) && !f.waits(); {
		q := f.ready[0]
		sent, more := f.turn(q)
		switch {
		case !more:
			f.dropLocked(0)
			idle = 0 // it may have broken, which makes room
			continue
		case sent && f.goesOn(q):
			cut = q
		case cut == q && !f.goesOn(q):
			cut = nil
		}
		copy(f.ready, f.ready[1:])
		f.ready[len(f.ready)-1] = q
		if sent {
			idle = 0
		} else {
			idle++
		}
	}
	if cut == nil {
		return
	}
	if i := slices.Index(f.ready, cut); i > 0 {
		copy(f.ready[1:i+1], f.ready[:i])
		f.ready[0] = cut
	}
}

// waits says that queue pairs wait for one another: the window is full.
func (f *flow) waits() bool { return len(f.ready) > 1 && f.full() }

// urge lets those send that need no room, while the others wait for it. They keep their
// places and what they may send in their turns: nobody goes before those that wait. It
// reports whether there may be more to send.
func (f *flow) urge() (again bool) {
	if !f.waits() {
		return false
	}
	for i := 0; i < len(f.ready) && f.urgent > 0; i++ {
		q := f.ready[i]
		if !q.urgent {
			continue
		}
		deficit := q.deficit
		q.deficit = f.quantum // lent
		sent, more := f.turn(q)
		q.deficit = deficit
		again = again || sent
		if !more {
			f.dropLocked(i)
			i--
		}
	}
	return again || !f.waits()
}

// dropLocked takes a queue pair out of the list.
func (f *flow) dropLocked(i int) {
	q := f.ready[i]
	q.queued, q.deficit = false, 0
	f.ready = slices.Delete(f.ready, i, i+1)
}

// goesOn says whether a turn that was cut is worth a burst yet. The rest of another is
// for the next turn: small bursts, each with an acknowledgement, are slow.
func (f *flow) goesOn(q *qp) bool { return q.deficit >= f.quantum/2 }

// turn sends what a queue pair may in its turn, or in the rest of it. more says that
// there is more, or would be, were there room.
func (f *flow) turn(q *qp) (sent, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, false
	}
	keys := q.machine.keys
	keys.mu.RLock() // until the kernel has copied
	defer keys.mu.RUnlock()
	now := q.pd.dev.now()
	// Once a window is full each acknowledgement opens it by little, and turns that
	// filled it by little would be of single packets, each with an acknowledgement of
	// its own, for ever. So no turn begins with less than half of a window or quantum,
	// unless that is all there is to send (the silly window of RFC 9293, 3.8.6.2.1).
	silly := f.full() && (len(f.ready) > 1 || int64(q.machine.unsent()) > f.room()) //nolint:gosec // far below 2^63
	switch {
	case len(f.ready) == 1: // there is nobody to be fair to
		q.deficit = f.quantum
	case !f.goesOn(q):
		q.deficit += f.quantum
	}
	packets := uint64(0)
	for q.deficit > 0 {
		// What ends the turn bounds the room, too, so that an acknowledgement is asked
		// for with its last packet: the next turn may be long in coming.
		room := min(f.room(), int64(q.deficit))
		switch {
		case q.machine.silent() && q.machine.req.flight == 0:
			room = int64(charge(1, q.machine.mtu)) //nolint:gosec // a packet
		case silly, q.machine.silent():
			room = 0
		case f.flight > 0 && f.room() < int64(charge(1, q.machine.mtu)): //nolint:gosec // a packet
			room = 0 // what goes beyond the window may go beyond the peer's buffer
		}
		before := f.flight
		if q.machine.pause(f.answers.left <= 0, now+answersEvery); !q.machine.next(now, room, &f.packet) {
			break
		}
		if !f.out.room() {
			f.send()
		}
		if f.packet.Op.IsReadResponse() {
			f.answers.left -= int64(charge(1, f.packet.Len)) //nolint:gosec // a packet
		}
		f.countLocked(q)
		if f.packet.Again {
			f.trust.repeats(q)
		}
		limit := f.trust.segments(f.sender.MaxSegments(f.to, f.out.segmentOf(&f.packet)), &f.packet)
		if f.out.add(&f.path, &f.packet, q.tos, limit) {
			f.trust.sent(q)
		}
		packets++
		q.deficit -= int(max(charge(1, f.packet.Len), f.flight-min(f.flight, before))) //nolint:gosec // packets: a READ is what it asks for
	}
	sent = packets > 0
	q.machine.counts.sent.Add(packets)
	// What was acknowledged meanwhile is counted when the queue pair settles: counted
	// here, in a turn without room, it made room for who is next, and not for who was
	// before.
	if sent || q.machine.state != verbs.StateRTS {
		f.countLocked(q)
	}
	if f.out.lent {
		f.send()
	}
	clear(f.packet.Payload)
	f.urgesLocked(q)
	q.armLocked()
	return sent, q.hasMore()
}

// least is the room that a turn begins with. A window that leaves less is full.
func (f *flow) least() uint64 { return min(f.window.size, quantum) / 2 }

// full says that the window leaves less than that.
func (f *flow) full() bool {
	return f.flight > 0 && f.room() < int64(f.least()) //nolint:gosec // far below 2^63
}

// room is what the window leaves.
func (f *flow) room() int64 {
	return int64(f.window.size) - int64(f.flight) //nolint:gosec // both far below 2^63
}

// send hands the packets to the kernel. What it does not take is as good as lost
// on the way: it is sent again.
func (f *flow) send() {
	if f.out.packets > 0 {
		f.station.provider.order.sends()
	}
	for msgs := f.out.end(f.to); len(msgs) > 0; {
		n, err := f.sender.Send(msgs)
		if err == nil {
			break
		}
		if !errors.Is(err, net.ErrClosed) {
			f.tell(err)
		}
		msgs = msgs[min(n+1, len(msgs)):]
	}
	f.out.begin()
}

// tell says that packets cannot be sent. It says it again only after a while, also
// where others were sent in between: short packets go where full ones are too long for
// a link, and each of those would be told of.
func (f *flow) tell(err error) {
	at := time.Since(f.start)
	if f.told && at < f.toldAt+toldEvery {
		return
	}
	f.told, f.toldAt = true, at
	f.station.provider.log.Warn("roce: packets cannot be sent", "from", f.station.addr, "to", f.remote.at, "reason", err)
}

// trust says whether super-packets reach the peer. Those of a roce device are; a
// kernel or a NIC may drop what comes with an identification that the ICRC does
// not have, so one of two segments is sent first, and seen whether it is
// acknowledged. What is never acknowledged, as an answer to a READ is, proves
// nothing; nor does what was sent before, as nobody knows which of the two arrived.
type trust struct {
	state  trustState
	tests  int
	probe  *qp
	number uint64 // the probe is acknowledged when all packets below it are
}

type trustState uint8

const (
	untested trustState = iota
	probing
	trusted
	distrusted
)

// trustTests is how many probes may be lost, as packets are, before super-packets
// are given up.
const trustTests = 3

// segments is how many a message may have when a packet is added to it, of those
// that the socket can.
func (t *trust) segments(limit int, p *packet) int {
	switch {
	case t.state == trusted:
		return limit
	case t.state == untested && p.Op.Request() && !p.Again:
		return min(limit, 2)
	}
	return 1
}

// sent notes that the last packet of a queue pair went as the second of a
// super-packet.
func (t *trust) sent(q *qp) {
	if t.state == untested {
		t.state, t.probe, t.number = probing, q, q.machine.req.next
	}
}

// learn looks whether the probe was acknowledged.
func (t *trust) learn(q *qp, n note) {
	if t.state != probing || t.probe != q {
		return
	}
	switch {
	case q.machine.state != verbs.StateRTS: // what it had sent is flushed, and not acknowledged
		t.forget(q)
	case q.machine.req.acked >= t.number:
		t.state, t.probe = trusted, nil
	case n.lost || n.timeouts > 0:
		t.fail()
	}
}

// repeats is for a queue pair that sends something again: what comes of it says
// nothing of a probe before it.
func (t *trust) repeats(q *qp) {
	t.learn(q, q.machine.note)
	t.forget(q)
}

// forget ends a probe whose queue pair goes, or that nothing will be known of.
func (t *trust) forget(q *qp) {
	if t.state == probing && t.probe == q {
		t.state, t.probe = untested, nil
	}
}

func (t *trust) fail() {
	t.state, t.probe = untested, nil
	if t.tests++; t.tests == trustTests {
		t.state = distrusted
	}
}
