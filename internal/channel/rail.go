package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// rail is one queue pair and its credits. Counts begin with the channel and are modulo
// 2³²; the difference of two counts is at most a window.
type rail struct {
	sent      uint32 // messages and WRITE_WITH_IMMs posted
	confirmed uint32 // how many of them the peer has taken, by its counts

	taken    uint32 // messages and WRITE_WITH_IMMs of the peer that have arrived
	reported uint32 // how many of them our counts have reported
	toRepost int    // taken since the last ActRepost; not reported yet

	posts      queue[posted]
	slot       uint32 // of the next work request
	unsignaled int    // work requests since the last signalled one
	inFlight   int64  // bytes of writes in flight
	probing    bool   // a probe is in flight

	starved bool // a last write waits for a credit and gets the next one

	blocked time.Time // since when something waits for a credit or a place; zero when nothing does
}

// reposted is the count to report: it leaves out messages whose receives are not posted
// again yet.
func (r *rail) reposted() uint32 { return r.taken - uint32(r.toRepost) } //nolint:gosec // at most a window

// posted is a work request in flight.
type posted struct {
	kind    postKind
	request ref   // postContent
	bytes   int64 // postContent
}

type postKind uint8

const (
	postMessage postKind = iota
	postContent          // uses a source, or follows writes that do
	postProbe
	postBye
)

// urgency is which part of the reserves a post may use.
type urgency uint8

const (
	urgentCredit   urgency = iota // CREDIT that reports half a window of rail 0: every credit and place
	urgentCounts                  // other CREDITs: every place, all but the last credit
	urgentControl                 // CANCEL, ACK, HELLO, BYE: every place, no reserved credit
	regularMessage                // responses and requests: no reserved place or credit
	regularWrite                  // content: also leaves places to messages
)

// canPost reports whether a message or WRITE_WITH_IMM can be posted on a rail.
func (c *Channel) canPost(rail int, u urgency) bool {
	return c.credits(rail) > c.reserved(rail, u) && c.sendQueueFree(rail, u)
}

// credits returns the number of credits of a rail: receives that the peer has posted and
// this side has not used.
func (c *Channel) credits(rail int) int {
	r := &c.rails[rail]
	return c.cfg.PeerWindow - int(r.sent-r.confirmed)
}

// reserved returns the number of credits that a post must leave. The last credit is for a
// CREDIT that reports receives of rail 0. If receives of other rails could use it up, both
// sides might have none left to report those of rail 0.
func (c *Channel) reserved(rail int, u urgency) int {
	switch {
	case rail != 0 || u == urgentCredit:
		return 0
	case u == urgentCounts:
		return min(1, c.reserve)
	case u == regularMessage && c.rails[0].starved:
		return c.reserve + 1 // otherwise a stream of messages could delay a content for ever
	}
	return c.reserve
}

// sendQueueFree reports whether the send queue of a rail has a free place.
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

// post posts a work request on a rail.
func (c *Channel) post(rail int, p posted, w Post) {
	r := &c.rails[rail]
	w.Rail, w.Slot = rail, r.slot
	// At least each quarter of the queue is signalled, so that completions free places
	// before the queue is full.
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

// Sent is the event that the signalled work request in a slot of a rail has completed
// successfully, and with it all that were posted on the rail before it.
func (c *Channel) Sent(now time.Time, rail int, slot uint32) {
	if c.state == Gone || rail < 0 || rail >= c.cfg.Rails {
		return
	}
	c.lastContact = now
	r := &c.rails[rail]
	depth := uint32(c.cfg.SendQueue)                       //nolint:gosec // at most MaxSendQueue
	oldest := (r.slot + depth - uint32(r.posts.n)) % depth //nolint:gosec // at most depth
	n := int((slot%depth+depth-oldest)%depth) + 1          // work requests that have completed
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

// confirm processes the counts of the peer.
func (c *Channel) confirm(counts wire.Counts) {
	if int(counts.N) != c.cfg.Rails {
		c.fault("a message counts %d rails, and the channel has %d", counts.N, c.cfg.Rails)
		return
	}
	for i := range c.rails[:c.cfg.Rails] {
		r := &c.rails[i]
		switch more := counts.Of[i] - r.confirmed; {
		case more == 0:
		case more > r.sent-r.confirmed:
			c.fault("the credit count of rail %d goes from %d to %d, and %d messages were posted", i, r.confirmed, counts.Of[i], r.sent)
			return
		default:
			r.confirmed, r.blocked = counts.Of[i], time.Time{}
		}
	}
	c.confirmIDs()
}

// countReceived counts a message or WRITE_WITH_IMM of the peer. ok is false when the peer
// has exceeded its credits.
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

// owesCounts reports whether half a window of a rail is not reported.
func (c *Channel) owesCounts(rail int) bool {
	r := &c.rails[rail]
	return int(r.taken-r.reported) >= c.cfg.Window/2
}

// header returns the header of a message on a rail. bare is the length of the message in
// bytes without acknowledged ids; as many of these as fit are added.
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

// send posts the message in c.out[at:].
func (c *Channel) send(rail, at int, p posted) {
	c.sendWith(rail, at, p, Source{}, 0)
}

// sendWith also posts the first length bytes of a source as the end of the message.
func (c *Channel) sendWith(rail, at int, p posted, content Source, length uint32) {
	c.post(rail, p, Post{Op: verbs.OpSend, Message: c.out[at:len(c.out):len(c.out)], Source: content, Length: length})
	if rail == 0 {
		c.pending.notePosted(c.rails[0].sent)
	}
}
