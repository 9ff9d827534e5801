package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// rail is one queue pair. Credits are counted from the beginning of the channel,
// modulo 2³²: a difference of two counts is never more than a window.
type rail struct {
	sent      uint32 // messages and WRITE_WITH_IMMs posted
	confirmed uint32 // how many of them the peer said that it has taken

	taken    uint32 // those of the peer, taken here
	reported uint32 // and how many of them it was told of
	toRepost int    // taken since the last ActRepost: the peer is told of none of these

	posts      queue[posted]
	slot       uint32 // of the next post
	unsignaled int    // posts since the last signalled one
	inFlight   int64  // bytes of writes under way
	probing    bool   // a probe is under way

	starved bool // a last write waits for a credit: the next one is for it

	blocked time.Time // since when something waits for a credit or a place; zero when nothing does
}

// free is how many of the peer's messages had been taken when receives were last posted
// again.
func (r *rail) reposted() uint32 { return r.taken - uint32(r.toRepost) } //nolint:gosec // at most a window

// posted is a work request under way.
type posted struct {
	kind    postKind
	request ref   // postContent
	bytes   int64 // postContent
}

type postKind uint8

const (
	postMessage postKind = iota
	postContent          // names a source, or fences it
	postProbe
	postBye
)

// urgency says what of the reserves a post may use.
type urgency uint8

const (
	urgentCredit   urgency = iota // CREDIT that tells of half a window of rail 0: all
	urgentCounts                  // other CREDITs: all but the last credit
	urgentControl                 // CANCEL, ACK, HELLO, BYE: every place
	regularMessage                // answers and requests
	regularWrite                  // content: leaves places to messages, too
)

// may reports whether a message or WRITE_WITH_IMM can be posted on a rail.
func (c *Channel) canPost(rail int, u urgency) bool {
	return c.credits(rail) > c.reserved(rail, u) && c.sendQueueFree(rail, u)
}

// credits is how many receives of the peer on a rail are certain to be free.
func (c *Channel) credits(rail int) int {
	r := &c.rails[rail]
	return c.cfg.PeerWindow - int(r.sent-r.confirmed)
}

// reserved is how many credits have to be left over. The last one can tell of
// receives of rail 0 only: if those of other rails could use it up, both sides might
// be without when it comes to rail 0.
func (c *Channel) reserved(rail int, u urgency) int {
	switch {
	case rail != 0 || u == urgentCredit:
		return 0
	case u == urgentCounts:
		return min(1, c.reserve)
	case u == regularMessage && c.rails[0].starved:
		return c.reserve + 1 // else a stream of messages would hold a content up for ever
	}
	return c.reserve
}

// places reports whether the send queue has room.
func (c *Channel) sendQueueFree(rail int, u urgency) bool {
	free := c.cfg.SendQueue - c.rails[rail].posts.n
	switch u {
	case regularMessage:
		return free > sendReserve
	case regularWrite:
		return free > 2*sendReserve
	}
	return free > 0
}

// post puts a work request on a rail.
func (c *Channel) post(rail int, p posted, w Post) {
	r := &c.rails[rail]
	w.Rail, w.Slot = rail, r.slot
	// A run without a signal is short enough that one always comes before the
	// queue is full.
	w.Signaled = p.kind != postMessage || r.unsignaled+1 >= c.cfg.SendQueue/4
	if r.unsignaled++; w.Signaled {
		r.unsignaled = 0
	}
	if r.slot++; r.slot == uint32(c.cfg.SendQueue) { //nolint:gosec // at most MaxSendQueue
		r.slot = 0
	}
	r.inFlight += p.bytes
	r.posts.push(p)
	if w.Op != verbs.OpWrite {
		r.sent++
		c.messages.Sent++
	}
	c.act(Action{Kind: ActPost, Post: w})
}

// Sent is the event that a signalled work request has ended well: that in the
// given slot of a rail, and with it all that were posted there before it.
func (c *Channel) Sent(now time.Time, rail int, slot uint32) {
	if c.state == Gone || rail < 0 || rail >= c.cfg.Rails {
		return
	}
	c.lastContact = now
	r := &c.rails[rail]
	depth := uint32(c.cfg.SendQueue)                       //nolint:gosec // at most MaxSendQueue
	oldest := (r.slot + depth - uint32(r.posts.n)) % depth //nolint:gosec // at most depth
	n := int((slot%depth+depth-oldest)%depth) + 1          // posts that have ended
	if slot >= depth || n > r.posts.n {
		c.fault("the device completed send slot %d of rail %d, where nothing is posted", slot, rail)
		return
	}
	for range n {
		switch p := r.posts.pop(); p.kind {
		case postContent:
			r.inFlight -= p.bytes
			c.workDone(p.request)
		case postProbe:
			r.probing = false
		case postBye:
			c.close(errByeSent(c.bye.reason))
		}
	}
}

// counts takes in how much the peer has taken.
func (c *Channel) confirm(told wire.Counts) {
	if int(told.N) != c.cfg.Rails {
		c.fault("a message counts %d rails, and the channel has %d", told.N, c.cfg.Rails)
		return
	}
	for i := range c.rails[:c.cfg.Rails] {
		r := &c.rails[i]
		switch more := told.Of[i] - r.confirmed; {
		case more == 0:
		case more > r.sent-r.confirmed:
			c.fault("the credit count of rail %d goes from %d to %d, and %d messages were posted", i, r.confirmed, told.Of[i], r.sent)
			return
		default:
			r.confirmed, r.blocked = told.Of[i], time.Time{}
		}
	}
	c.confirmIDs()
}

// took counts a message or WRITE_WITH_IMM of the peer. ok is false when that was
// more than it was allowed.
func (c *Channel) countReceived(now time.Time, rail int) (ok bool) {
	r := &c.rails[rail]
	c.lastContact = now
	r.taken++
	r.toRepost++
	c.messages.Received++
	if int(r.taken-r.reported) > c.cfg.Window {
		c.fault("it sent more than its window of %d on rail %d", c.cfg.Window, rail)
		return false
	}
	return true
}

// owed reports whether half a window of a rail is to be told.
func (c *Channel) owesCounts(rail int) bool {
	r := &c.rails[rail]
	return int(r.taken-r.reported) >= c.cfg.Window/2
}

// header is what a message on a rail begins with, whose length without ids is
// bare. Finished ids ride on it as room is.
func (c *Channel) header(rail, bare int, kind wire.Kind) (h wire.Header) {
	if rail != 0 {
		return h
	}
	h.Taken.N = uint8(c.cfg.Rails) //nolint:gosec // at most wire.MaxRails
	for i := range c.rails[:c.cfg.Rails] {
		r := &c.rails[i]
		r.reported = r.reposted()
		h.Taken.Of[i] = r.reported
	}
	c.countsBy = time.Time{}
	if kind != wire.KindCredit && kind != wire.KindHello && kind != wire.KindBye {
		h.Acks, h.WantCounts = c.takeAcks((c.cfg.PeerMessage-bare-4*c.cfg.Rails)/8, wire.MaxHeaderAcks)
	}
	return h
}

// send posts the message that was appended to c.out from at on.
func (c *Channel) send(rail, at int, p posted) {
	c.sendWith(rail, at, p, Source{}, 0)
}

func (c *Channel) sendWith(rail, at int, p posted, beside Source, length uint32) {
	c.post(rail, p, Post{Op: verbs.OpSend, Message: c.out[at:len(c.out):len(c.out)], Source: beside, Length: length})
	if rail == 0 {
		c.pending.notePosted(c.rails[0].sent)
	}
}
