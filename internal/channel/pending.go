package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
)

// pendingIDs are the ids to report to the peer: acks, for responses that have arrived, and
// cancels. Ids are counted from the beginning of the channel. Each list has been sent up to
// one count, and taken by the peer up to another (ARCHITECTURE.md section 6, rule d).
type pendingIDs struct {
	acks, cancels idQueue
	// unbatched are the ids that Cancel and CancelBefore have queued in cancels and that no
	// SendCancels has named since: it does not send them again. At most MaxWaiting, so that
	// ids that are never named take no more; those beyond are sent twice, which is harmless.
	unbatched   map[uint64]struct{}
	unconfirmed queue[idMessage] // messages that carried ids and that the peer's counts have not confirmed
	flushBy     time.Time        // when acks are sent in ACK at the latest; zero when there are none
}

type idQueue struct {
	ids    queue[uint64] // not sent yet
	sent   Mark          // number of ids sent
	taken  Mark          // number of these that the peer has taken
	wanted Mark          // the shell waits until taken has reached it
}

// push adds an id whose confirmation the shell waits for.
func (s *idQueue) push(id uint64) {
	s.ids.push(id)
	s.wanted = s.end()
}

// end is the mark of the last id.
func (s *idQueue) end() Mark { return s.sent + Mark(s.ids.n) } //nolint:gosec // not negative

// idMessage is a message that carried ids.
type idMessage struct {
	sent uint32 // rail.sent of rail 0 after it
	upTo Marks
}

// Ack is the event that ids are acknowledged without a request that could carry them
// (Receive.Acks). They are sent at once. ActTaken with the mark confirms that the peer has
// taken them. If the channel ends before, the shell acknowledges them again on another
// connection.
func (c *Channel) Ack(now time.Time, ids []uint64) Mark {
	c.addAcks(now, ids)
	f := &c.pending.acks
	f.wanted = f.end()
	return f.wanted
}

// addAcks queues ids for the next message, or for ACK at the given time.
func (c *Channel) addAcks(by time.Time, ids []uint64) {
	s := &c.pending
	if len(ids) > 0 && (s.flushBy.IsZero() || s.flushBy.After(by)) {
		s.flushBy = by
	}
	for _, id := range ids {
		s.acks.ids.push(id)
	}
}

// SendCancels is the event that ids are no longer wanted, whichever connection they were
// requested on. They are sent at once, except those that Cancel or CancelBefore has sent. The
// mark is as in Ack. A receive among them that has not ended on this channel ends with
// OutcomeError.
func (c *Channel) SendCancels(now time.Time, ids []uint64) Mark {
	s := &c.pending
	for _, id := range ids {
		c.endCancelled(now, id)
		if _, sent := s.unbatched[id]; sent {
			delete(s.unbatched, id)
			continue
		}
		s.cancels.push(id)
	}
	return s.cancels.end() // also of the ids that were sent before
}

// CancelBefore is SendCancels before a request, for ids that SendCancels will name later: the
// peer must cancel them before it looks at the request.
func (c *Channel) CancelBefore(now time.Time, ids []uint64) {
	for _, id := range ids {
		c.endCancelled(now, id)
		if _, sent := c.pending.unbatched[id]; !sent {
			c.queueCancel(id)
		}
	}
}

// endCancelled ends the receive with an id that is cancelled, if there is one.
func (c *Channel) endCancelled(now time.Time, id uint64) {
	r, ok := c.byID[id]
	if !ok || c.receives.at(r).ended {
		return
	}
	x := c.receives.at(r)
	if !x.destSent { // a peer that has it may write until it confirms the cancel
		c.freeDest(r)
	}
	c.act(Action{Kind: ActEnd, ID: id, Attempt: x.attempt, Handle: x.handle, Outcome: OutcomeError,
		Err: status.New(status.Cancelled, "the receive was cancelled")})
	c.cancel(now, r)
}

// queueCancel sends an id in CANCEL that SendCancels will name later.
func (c *Channel) queueCancel(id uint64) {
	s := &c.pending
	s.cancels.push(id)
	if len(s.unbatched) >= c.cfg.MaxWaiting {
		return
	}
	if s.unbatched == nil {
		s.unbatched = make(map[uint64]struct{})
	}
	s.unbatched[id] = struct{}{}
}

// takeAcks takes acks from the list: as many as space, but at most most. wantCounts
// reports whether the shell waits for one of them to be taken.
func (c *Channel) takeAcks(space, most int) (ids wire.IDs, wantCounts bool) {
	s := &c.pending
	n := max(0, min(space, most, s.acks.ids.n))
	c.ackBuf, wantCounts = s.acks.take(c.ackBuf[:0], n)
	if s.acks.ids.n == 0 {
		s.flushBy = time.Time{}
	}
	return c.ackBuf, wantCounts
}

// take moves n ids from the list to b. The second result is as in takeAcks.
func (s *idQueue) take(b wire.IDs, n int) (wire.IDs, bool) {
	wantCounts := n > 0 && s.sent < s.wanted
	for range n {
		b = b.Append(s.ids.pop())
	}
	s.sent += Mark(n) //nolint:gosec // not negative
	return b, wantCounts
}

// notePosted notes that a message has been posted on rail 0. sent is the count with it.
func (s *pendingIDs) notePosted(sent uint32) {
	upTo := Marks{s.acks.sent, s.cancels.sent}
	if s.unconfirmed.n > 0 && s.unconfirmed.at(s.unconfirmed.n-1).upTo == upTo || s.unconfirmed.n == 0 && upTo == (Marks{s.acks.taken, s.cancels.taken}) {
		return // the message carried no ids
	}
	s.unconfirmed.push(idMessage{sent, upTo})
}

// confirmIDs updates which ids the peer has taken, by its counts.
func (c *Channel) confirmIDs() {
	s := &c.pending
	before := Marks{s.acks.taken, s.cancels.taken}
	for s.unconfirmed.n > 0 && int32(c.rails[0].confirmed-s.unconfirmed.at(0).sent) >= 0 { //nolint:gosec // counts wrap
		m := s.unconfirmed.pop()
		s.acks.taken, s.cancels.taken = m.upTo.Acks, m.upTo.Cancels
	}
	passed := func(s *idQueue, before Mark) bool { return s.taken > before && before < s.wanted }
	if passed(&s.acks, before.Acks) || passed(&s.cancels, before.Cancels) {
		c.act(Action{Kind: ActTaken, Taken: Marks{s.acks.taken, s.cancels.taken}})
	}
}

// outstanding reports whether ids are to be sent, or the shell waits for ids to be taken.
func (s *pendingIDs) outstanding() bool {
	return s.acks.ids.n+s.cancels.ids.n > 0 || s.acks.taken < s.acks.wanted || s.cancels.taken < s.cancels.wanted
}
