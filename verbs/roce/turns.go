package roce

import (
	"slices"

	"github.com/tryst-rdma/tryst/verbs"
)

// transmit gives turns until nobody can send. Packets that are whole in the burst, as
// acknowledgements are, go out together, whichever queue pairs they are of.
func (f *flow) transmit() {
	f.windowLimited = false
	f.batch.reset()
	for again := true; again; {
		f.runTurns()
		again = f.sendUrgent()
	}
	f.send()
}

// turns gives turns until the window is full, or nobody can send.
func (f *flow) runTurns() {
	var interrupted *qp // its turn was, and is the next
	for idle := 0; idle < len(f.ready) && !f.blocked(); {
		q := f.ready[0]
		sent, more := f.turn(q)
		switch {
		case !more:
			f.dequeueLocked(0)
			idle = 0 // it may have broken, which makes room
			continue
		case sent && f.keepsTurn(q):
			interrupted = q
		case interrupted == q && !f.keepsTurn(q):
			interrupted = nil
		}
		copy(f.ready, f.ready[1:])
		f.ready[len(f.ready)-1] = q
		if sent {
			idle = 0
		} else {
			idle++
		}
	}
	if interrupted == nil {
		return
	}
	if i := slices.Index(f.ready, interrupted); i > 0 {
		copy(f.ready[1:i+1], f.ready[:i])
		f.ready[0] = interrupted
	}
}

// waits says that queue pairs wait for one another: the window is full.
func (f *flow) blocked() bool { return len(f.ready) > 1 && f.full() }

// urge lets those send that need no room, while the others wait for it. They keep their
// places and what they may send in their turns: nobody goes before those that wait. It
// reports whether there may be more to send.
func (f *flow) sendUrgent() (again bool) {
	if !f.blocked() {
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
			f.dequeueLocked(i)
			i--
		}
	}
	return again || !f.blocked()
}

// dropLocked takes a queue pair out of the list.
func (f *flow) dequeueLocked(i int) {
	q := f.ready[i]
	q.queued, q.deficit = false, 0
	f.ready = slices.Delete(f.ready, i, i+1)
}

// goesOn says whether a turn that was cut is worth a burst yet. The rest of another is
// for the next turn: small bursts, each with an acknowledgement, are slow.
func (f *flow) keepsTurn(q *qp) bool { return q.deficit >= f.quantum/2 }

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
	silly := f.full() && (len(f.ready) > 1 || int64(q.machine.unsentCost()) > f.space()) //nolint:gosec // far below 2^63
	switch {
	case len(f.ready) == 1: // there is nobody to be fair to
		q.deficit = f.quantum
	case !f.keepsTurn(q):
		q.deficit += f.quantum
	}
	packets := uint64(0)
	for q.deficit > 0 {
		// What ends the turn bounds the room, too, so that an acknowledgement is asked
		// for with its last packet: the next turn may be long in coming.
		room := min(f.space(), int64(q.deficit))
		switch {
		case q.machine.unresponsive() && q.machine.req.flight == 0:
			room = int64(windowCost(1, q.machine.mtu)) //nolint:gosec // a packet
		case silly, q.machine.unresponsive():
			room = 0
		case f.flight > 0 && f.space() < int64(windowCost(1, q.machine.mtu)): //nolint:gosec // a packet
			room = 0 // what goes beyond the window may go beyond the peer's buffer
		}
		before := f.flight
		if q.machine.pauseReads(f.readPacer.budget <= 0, now+readInterval); !q.machine.nextPacket(now, room, &f.packet) {
			break
		}
		if !f.batch.hasSpace() {
			f.send()
		}
		if f.packet.Op.IsReadResponse() {
			f.readPacer.budget -= int64(windowCost(1, f.packet.Len)) //nolint:gosec // a packet
		}
		f.countLocked(q)
		if f.packet.Retransmit {
			f.probe.onRetransmit(q)
		}
		limit := f.probe.maxSegments(f.sender.MaxSegments(f.to, f.batch.segmentOf(&f.packet)), &f.packet)
		if f.batch.add(&f.path, &f.packet, q.tos, limit) {
			f.probe.onSuperPacket(q)
		}
		packets++
		q.deficit -= int(max(windowCost(1, f.packet.Len), f.flight-min(f.flight, before))) //nolint:gosec // packets: a READ is what it asks for
	}
	sent = packets > 0
	q.machine.counters.sent.Add(packets)
	// What was acknowledged meanwhile is counted when the queue pair settles: counted
	// here, in a turn without room, it made room for who is next, and not for who was
	// before.
	if sent || q.machine.state != verbs.StateRTS {
		f.countLocked(q)
	}
	if f.batch.borrowed {
		f.send()
	}
	clear(f.packet.Payload)
	f.updateUrgentLocked(q)
	q.armLocked()
	return sent, q.hasMore()
}

// least is the room that a turn begins with. A window that leaves less is full.
func (f *flow) minTurn() uint64 { return min(f.window.size, quantum) / 2 }

// full says that the window leaves less than that.
func (f *flow) full() bool {
	return f.flight > 0 && f.space() < int64(f.minTurn()) //nolint:gosec // far below 2^63
}

// room is what the window leaves.
func (f *flow) space() int64 {
	return int64(f.window.size) - int64(f.flight) //nolint:gosec // both far below 2^63
}
