package roce

import (
	"slices"

	"github.com/tryst-rdma/tryst/verbs"
)

// transmit runs turns until no queue pair can send. Packets that are copied into the
// batch, such as ACKs, are sent together, also those of different queue pairs.
func (f *flow) transmit() {
	f.windowLimited = false
	f.batch.reset()
	for again := true; again; {
		f.runTurns()
		again = f.sendUrgent()
	}
	f.send()
}

// runTurns runs turns until the window is full, or no queue pair can send.
func (f *flow) runTurns() {
	var interrupted *qp // the queue pair whose turn the window interrupted; it is the next to send
	for idle := 0; idle < len(f.ready) && !f.blocked(); {
		q := f.ready[0]
		sent, more := f.turn(q)
		switch {
		case !more:
			f.dequeueLocked(0)
			idle = 0 // it may have failed, which frees space
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

// blocked reports whether queue pairs wait for the window.
func (f *flow) blocked() bool { return len(f.ready) > 1 && f.full() }

// sendUrgent lets queue pairs send what needs no space, while the others wait for the
// window. It changes neither the order nor the deficits, so nobody overtakes the
// waiting ones. again is true if there may be more to send.
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
		q.deficit = f.quantum // for this turn only
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

// dequeueLocked removes a queue pair from the list.
func (f *flow) dequeueLocked(i int) {
	q := f.ready[i]
	q.queued, q.deficit = false, 0
	f.ready = slices.Delete(f.ready, i, i+1)
}

// keepsTurn reports whether the rest of an interrupted turn is large enough to
// continue. A smaller rest is added to the next turn, because small batches, each with
// an ACK of its own, are slow.
func (f *flow) keepsTurn(q *qp) bool { return q.deficit >= f.quantum/2 }

// turn sends what a queue pair may send in its turn, or in the rest of it. more reports
// whether there is more to send, given space in the window.
func (f *flow) turn(q *qp) (sent, more bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false, false
	}
	keys := q.machine.keys
	keys.Mu.RLock() // until the kernel has copied the payloads
	defer keys.Mu.RUnlock()
	now := q.pd.dev.now()
	// When the window is full, each ACK frees little space. Turns that fill it at once
	// would consist of single packets, each with an ACK of its own, forever. So a turn
	// does not begin with less space than half of a window or quantum, unless that is
	// enough for all there is to send (silly window syndrome: RFC 9293, 3.8.6.2.1).
	silly := f.full() && (len(f.ready) > 1 || int64(q.machine.unsentCost()) > f.space()) //nolint:gosec // far below 2^63
	switch {
	case len(f.ready) == 1: // no other queue pair waits
		q.deficit = f.quantum
	case !f.keepsTurn(q):
		q.deficit += f.quantum
	}
	packets := uint64(0)
	for q.deficit > 0 {
		before := f.flight
		if q.machine.pauseReads(f.readPacer.budget <= 0, now+readInterval); !q.machine.nextPacket(now, f.turnSpace(q, silly), &f.packet) {
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
		q.deficit -= int(max(windowCost(1, f.packet.Len), f.flight-min(f.flight, before))) //nolint:gosec // packets; a READ request counts as its responses
	}
	sent = packets > 0
	q.machine.counters.sent.Add(packets)
	f.peer.counts.sent.Add(packets)
	// A turn that sends nothing does not update the flight: what was acknowledged in
	// the meantime is counted by the queue pair's next schedule. Otherwise the space
	// would go to the next queue pair in the list, not to those before it.
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

// turnSpace returns the space for the next packet of a turn.
func (f *flow) turnSpace(q *qp, silly bool) int64 {
	one := int64(windowCost(1, q.machine.mtu)) //nolint:gosec // a packet
	switch {
	case q.machine.unresponsive() && q.machine.req.flight == 0:
		return one // a probe
	case silly, q.machine.unresponsive():
		return 0
	case f.flight > 0 && f.space() < one:
		return 0 // a packet beyond the window may exceed the peer's buffer
	}
	// The space also ends with the turn, so that the last packet of the turn requests an
	// ACK: the next turn may be far off.
	return min(f.space(), int64(q.deficit))
}

// minTurn is the space that a turn needs to begin.
func (f *flow) minTurn() uint64 { return min(f.window.size, quantum) / 2 }

// full reports whether the window leaves less than minTurn.
func (f *flow) full() bool {
	return f.flight > 0 && f.space() < int64(f.minTurn()) //nolint:gosec // far below 2^63
}

// space returns what the window leaves.
func (f *flow) space() int64 {
	return int64(f.window.size) - int64(f.flight) //nolint:gosec // both far below 2^63
}
