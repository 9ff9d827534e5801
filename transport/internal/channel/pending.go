package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// say is what the peer has to know beside requests and answers: which answers have
// arrived, and which receives are not wanted any more. Ids are counted from the
// channel's beginning; each list has been said up to one count and taken up to
// another (ARCHITECTURE.md section 6d).
type pendingIDs struct {
	acks, cancels idQueue
	unconfirmed   queue[idMessage] // messages that carried ids and have not been told as taken
	flushBy       time.Time        // when they are said alone; zero when there are none
}

type idQueue struct {
	ids    queue[uint64] // not said yet
	sent   Mark          // how many were said
	taken  Mark          // how many of these the peer has taken
	wanted Mark          // up to which somebody waits for that
}

// given is the mark of the last id that is known.
func (s *idQueue) end() Mark { return s.sent + Mark(s.ids.n) } //nolint:gosec // not negative

// saying is a message that carried ids.
type idMessage struct {
	sent uint32 // the count of rail 0 with it
	upTo Marks
}

// Finish is the event that the answers to ids have arrived and may be let go by the
// peer, and that no request came for them to ride on (Receive.Finished): they are said
// at once. ActTaken with the mark tells that the peer took them; if the channel goes
// before, they are to be said again on another wire.
func (c *Channel) Ack(now time.Time, ids []uint64) Mark {
	c.addAcks(now, ids)
	f := &c.pending.acks
	f.wanted = f.end()
	return f.wanted
}

// finish has ids said with the next message, or alone when the time has come.
func (c *Channel) addAcks(by time.Time, ids []uint64) {
	s := &c.pending
	if len(ids) > 0 && (s.flushBy.IsZero() || s.flushBy.After(by)) {
		s.flushBy = by
	}
	for _, id := range ids {
		s.acks.ids.push(id)
	}
}

// SendCancels is the event that ids are not wanted any more, whichever wire they
// were asked on. They are said at once. The mark is as in Finish. A receive among
// them that has not ended on this channel ends, with OutcomeError.
func (c *Channel) SendCancels(now time.Time, ids []uint64) Mark {
	s := &c.pending.cancels
	for _, id := range ids {
		if r, ok := c.byID[id]; ok && !c.receives.at(r).ended {
			x := c.receives.at(r)
			c.act(Action{Kind: ActEnd, ID: id, Attempt: x.attempt, Handle: x.handle, Outcome: OutcomeError,
				Err: status.New(status.Cancelled, "the receive was cancelled")})
			c.cancel(now, r)
		}
		s.ids.push(id)
	}
	s.wanted = s.end()
	return s.wanted
}

// ride takes finished ids off the list for a message that has room for so many.
// tell says that somebody waits for them to be taken.
func (c *Channel) takeAcks(room, most int) (ids wire.IDs, tell bool) {
	s := &c.pending
	n := max(0, min(room, most, s.acks.ids.n))
	c.ackBuf, tell = s.acks.take(c.ackBuf[:0], n)
	if s.acks.ids.n == 0 {
		s.flushBy = time.Time{}
	}
	return c.ackBuf, tell
}

// take moves n ids from the list to b.
func (s *idQueue) take(b wire.IDs, n int) (wire.IDs, bool) {
	tell := n > 0 && s.sent < s.wanted
	for range n {
		b = b.Append(s.ids.pop())
	}
	s.sent += Mark(n) //nolint:gosec // not negative
	return b, tell
}

// posted notes that a message has been posted, the sent-th on rail 0.
func (s *pendingIDs) notePosted(sent uint32) {
	upTo := Marks{s.acks.sent, s.cancels.sent}
	if s.unconfirmed.n > 0 && s.unconfirmed.at(s.unconfirmed.n-1).upTo == upTo || s.unconfirmed.n == 0 && upTo == (Marks{s.acks.taken, s.cancels.taken}) {
		return // it carried none
	}
	s.unconfirmed.push(idMessage{sent, upTo})
}

// taken looks which of what was said the peer has taken.
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

// unsaid reports whether something is to be said, or somebody waits to know that it
// was taken.
func (s *pendingIDs) outstanding() bool {
	return s.acks.ids.n+s.cancels.ids.n > 0 || s.acks.taken < s.acks.wanted || s.cancels.taken < s.cancels.wanted
}
