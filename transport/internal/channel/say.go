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
type say struct {
	finished, cancelled said
	under               queue[saying] // messages that carried ids and have not been told as taken
	by                  time.Time     // when they are said alone; zero when there are none
}

type said struct {
	ids    queue[uint64] // not said yet
	out    Mark          // how many were said
	taken  Mark          // how many of these the peer has taken
	wanted Mark          // up to which somebody waits for that
}

// given is the mark of the last id that is known.
func (s *said) given() Mark { return s.out + Mark(s.ids.n) } //nolint:gosec // not negative

// saying is a message that carried ids.
type saying struct {
	sent uint32 // the count of rail 0 with it
	upTo Marks
}

// Finish is the event that the answers to ids have arrived and may be let go by the
// peer, and that no request came for them to ride on (Receive.Finished): they are said
// at once. ActTaken with the mark tells that the peer took them; if the channel goes
// before, they are to be said again on another wire.
func (c *Channel) Finish(now time.Time, ids []uint64) Mark {
	c.finish(now, ids)
	f := &c.say.finished
	f.wanted = f.given()
	return f.wanted
}

// finish has ids said with the next message, or alone when the time has come.
func (c *Channel) finish(by time.Time, ids []uint64) {
	s := &c.say
	if len(ids) > 0 && (s.by.IsZero() || s.by.After(by)) {
		s.by = by
	}
	for _, id := range ids {
		s.finished.ids.push(id)
	}
}

// SayCancelled is the event that ids are not wanted any more, whichever wire they
// were asked on. They are said at once. The mark is as in Finish. A receive among
// them that has not ended on this channel ends, with OutcomeError.
func (c *Channel) SayCancelled(now time.Time, ids []uint64) Mark {
	s := &c.say.cancelled
	for _, id := range ids {
		if r, ok := c.byID[id]; ok && !c.receives.at(r).over {
			x := c.receives.at(r)
			c.act(Action{Kind: ActEnd, ID: id, Attempt: x.attempt, Handle: x.handle, Outcome: OutcomeError,
				Err: status.New(status.Cancelled, "the receive was cancelled")})
			c.cancel(now, r)
		}
		s.ids.push(id)
	}
	s.wanted = s.given()
	return s.wanted
}

// ride takes finished ids off the list for a message that has room for so many.
// tell says that somebody waits for them to be taken.
func (c *Channel) ride(room, most int) (ids wire.IDs, tell bool) {
	s := &c.say
	n := max(0, min(room, most, s.finished.ids.n))
	c.riders, tell = s.finished.take(c.riders[:0], n)
	if s.finished.ids.n == 0 {
		s.by = time.Time{}
	}
	return c.riders, tell
}

// take moves n ids from the list to b.
func (s *said) take(b wire.IDs, n int) (wire.IDs, bool) {
	tell := n > 0 && s.out < s.wanted
	for range n {
		b = b.Append(s.ids.pop())
	}
	s.out += Mark(n) //nolint:gosec // not negative
	return b, tell
}

// posted notes that a message has been posted, the sent-th on rail 0.
func (s *say) posted(sent uint32) {
	upTo := Marks{s.finished.out, s.cancelled.out}
	if s.under.n > 0 && s.under.at(s.under.n-1).upTo == upTo || s.under.n == 0 && upTo == (Marks{s.finished.taken, s.cancelled.taken}) {
		return // it carried none
	}
	s.under.push(saying{sent, upTo})
}

// taken looks which of what was said the peer has taken.
func (c *Channel) taken() {
	s := &c.say
	before := Marks{s.finished.taken, s.cancelled.taken}
	for s.under.n > 0 && int32(c.rails[0].told-s.under.at(0).sent) >= 0 { //nolint:gosec // counts wrap
		m := s.under.pop()
		s.finished.taken, s.cancelled.taken = m.upTo.Finish, m.upTo.Cancel
	}
	passed := func(s *said, before Mark) bool { return s.taken > before && before < s.wanted }
	if passed(&s.finished, before.Finish) || passed(&s.cancelled, before.Cancel) {
		c.act(Action{Kind: ActTaken, Taken: Marks{s.finished.taken, s.cancelled.taken}})
	}
}

// unsaid reports whether something is to be said, or somebody waits to know that it
// was taken.
func (s *say) unsaid() bool {
	return s.finished.ids.n+s.cancelled.ids.n > 0 || s.finished.taken < s.finished.wanted || s.cancelled.taken < s.cancelled.wanted
}
