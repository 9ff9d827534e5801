package channel

import (
	"maps"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/verbs"
)

// pump posts what can be posted, in this order: CANCEL; responses; requests; ACK and
// CREDIT, if no message before carried their ids and counts; content, a chunk of each
// share in turn. A kind that cannot be posted for lack of a credit or a place stops those
// after it on its rail, so that requests do not starve responses. ACK and CREDIT have
// reserved credits and places and are not stopped.
func (c *Channel) pump(now time.Time) {
	if !c.helloSent && !c.sendHello() || c.bye.posted {
		return
	}
	all := c.sendCancels() && c.sendResponses(now) &&
		(c.bye.wanted || c.sendRequests(now) && c.sendQueries(now))
	all = c.sendDueAcks(now) && all
	c.sendCredit(now)
	if c.bye.wanted && all {
		all = c.sendBye()
	}
	for i := range c.rails[:c.cfg.Rails] {
		stuck := !c.sendFinals(i)
		stuck = !c.sendContent(i) || stuck
		c.block(now, i, stuck || i == 0 && !all)
	}
}

// block notes since when something waits for a credit or a place on a rail.
func (c *Channel) block(now time.Time, rail int, stuck bool) {
	r := &c.rails[rail]
	switch {
	case !stuck:
		r.blocked = time.Time{}
	case r.blocked.IsZero():
		r.blocked = now
	}
}

func (c *Channel) sendHello() bool {
	if !c.canPost(0, urgentControl) {
		return false
	}
	m := wire.Hello{Generation: c.cfg.Generation, From: c.cfg.OwnIncarnation, To: c.cfg.PeerIncarnation}
	m.Header = c.header(0, m.Length(), wire.KindHello)
	at := len(c.out)
	c.out = m.Append(c.out)
	c.send(0, at, posted{})
	c.helloSent = true
	return true
}

func (c *Channel) sendBye() bool {
	if !c.canPost(0, urgentControl) {
		return false
	}
	m := wire.Bye{Reason: c.bye.reason}
	m.Header = c.header(0, m.Length(), wire.KindBye)
	at := len(c.out)
	c.out = m.Append(c.out)
	c.send(0, at, posted{kind: postBye})
	c.bye.posted = true
	return true
}

// sendCancels posts CANCEL. Like all senders of pump it returns false when it could not
// post everything.
func (c *Channel) sendCancels() bool {
	s := &c.pending.cancels
	for s.ids.n > 0 {
		if !c.canPost(0, urgentControl) {
			return false
		}
		var m wire.Cancel
		m.IDs, m.WantCounts = s.take(nil, min(s.ids.n, wire.ListCapacity(c.cfg.PeerMessage, c.cfg.Rails)))
		wantCounts := m.WantCounts
		m.Header = c.header(0, m.Length(), wire.KindCancel)
		m.WantCounts = m.WantCounts || wantCounts
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	return true
}

// popIDs takes as many ids from a queue as fit into a message.
func (c *Channel) popIDs(q *queue[uint64]) (ids wire.IDs) {
	for range min(q.n, wire.ListCapacity(c.cfg.PeerMessage, c.cfg.Rails)) {
		ids = ids.Append(q.pop())
	}
	return ids
}

func (c *Channel) sendResponses(now time.Time) bool {
	for c.cancelledIDs.n > 0 {
		if !c.canPost(0, regularMessage) {
			return false
		}
		var m wire.Cancelled
		m.IDs = c.popIDs(&c.cancelledIDs)
		m.Header = c.header(0, m.Length(), wire.KindCancelled)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	for c.waitingIDs.n > 0 {
		if !c.canPost(0, regularMessage) {
			return false
		}
		var m wire.Waiting
		m.IDs = c.popIDs(&c.waitingIDs)
		m.Header = c.header(0, m.Length(), wire.KindWaiting)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	for c.unknownIDs.n > 0 {
		if !c.canPost(0, regularMessage) {
			return false
		}
		var m wire.Unknown
		m.IDs = c.popIDs(&c.unknownIDs)
		m.Header = c.header(0, m.Length(), wire.KindUnknown)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	for {
		r := c.requests.first(listToRespond)
		if r == none {
			return true
		}
		if !c.canPost(0, regularMessage) {
			return false
		}
		c.sendResponse(now, r)
	}
}

func (c *Channel) sendResponse(now time.Time, r ref) {
	a := c.requests.at(r)
	at := len(c.out)
	switch {
	case a.err != nil:
		c.appendError(0, a, false)
		c.send(0, at, posted{})
		c.release(r)
	case c.Eager(&a.value):
		m := wire.Eager{ID: a.id, Value: a.value}
		m.Header = c.header(0, m.HeadLength()+int(a.value.Size), wire.KindEager) //nolint:gosec // at most the eager limit
		c.out = m.AppendHead(c.out)
		c.sendWith(0, at, posted{}, a.source, uint32(a.value.Size)) //nolint:gosec // at most the eager limit
		c.release(r)
	default:
		m := wire.Meta{ID: a.id, Value: a.value}
		m.Header = c.header(0, m.Length(), wire.KindMeta)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
		c.requests.move(r, listAwaitsDest)
		a.state, a.metaSent, a.since = requestAwaitsDest, true, now
	}
}

// appendError encodes the ERROR of a request, with as many payloads as fit.
func (c *Channel) appendError(rail int, a *request, each bool) {
	m := wire.Error{ID: a.id, Code: a.err.Code(), Fallback: a.fallback, Each: each}
	m.Text = []byte(status.ForPeer(a.err.Message()))
	payloads := a.err.Payloads()
	for _, key := range slices.Sorted(maps.Keys(payloads)) {
		with := m
		with.Payloads = m.Payloads.Append(key, payloads[key])
		if with.Length()+4*c.cfg.Rails <= c.cfg.PeerMessage {
			m = with
		}
	}
	m.Header = c.header(rail, m.Length(), wire.KindError)
	c.out = m.Append(c.out)
}

func (c *Channel) sendRequests(now time.Time) bool {
	for {
		r := c.receives.first(listToReRequest)
		if r == none {
			break
		}
		x := c.receives.at(r)
		if !c.canPost(0, regularMessage) || x.hasDest && !c.openSlot(r) {
			return false
		}
		m := wire.ReRequest{ID: x.id, HasDest: x.hasDest}
		if x.hasDest {
			m.Dest = c.wireDest(x)
		}
		m.Header = c.header(0, m.Length(), wire.KindReRequest)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
		if x.hasDest {
			c.setList(now, r, listRequested)
		} else {
			c.end(r)
		}
	}
	for {
		r := c.receives.first(listToRequest)
		if r == none {
			return true
		}
		x := c.receives.at(r)
		for x.acksUpTo > c.pending.acks.sent+wire.MaxHeaderAcks { // they are sent before the request or in its header
			if !c.sendAck() {
				return false
			}
		}
		if !c.canPost(0, regularMessage) || x.hasDest && !c.openSlot(r) {
			return false
		}
		m := wire.Request{
			ID: x.id, Requester: c.cfg.OwnIncarnation, Responder: x.responder, Left: x.left,
			Step: x.step, Attempt: x.attempt, HasDest: x.hasDest,
		}
		if x.hasDest {
			m.Dest, m.Value = c.wireDest(x), x.value
		}
		bare := m.Length() + len(x.key)
		if space := (c.cfg.PeerMessage - bare - 4*c.cfg.Rails) / 8; x.acksUpTo > c.pending.acks.sent+Mark(max(0, space)) { //nolint:gosec // not negative
			if !c.sendAck() {
				return false
			}
			continue
		}
		m.Header = c.header(0, bare, wire.KindRequest)
		at := len(c.out)
		c.out = m.AppendHead(c.out, len(x.key))
		c.out = append(c.out, x.key...)
		c.send(0, at, posted{})
		c.setList(now, r, listRequested)
	}
}

// openSlot assigns a slot to a receive with a destination. It returns false when all slots
// are in use.
func (c *Channel) openSlot(r ref) bool {
	x := c.receives.at(r)
	if x.destSent {
		return true
	}
	x.imm, x.destSent = c.slots.take(r)
	return x.destSent
}

func (c *Channel) wireDest(x *receive) wire.Dest {
	return wire.Dest{Imm: x.imm, N: uint8(c.cfg.Rails), First: x.dest.First, Rails: x.dest.Rails} //nolint:gosec // at most wire.MaxRails
}

// sendDueAcks posts ACK for ids whose time has come and that no message has carried.
func (c *Channel) sendDueAcks(now time.Time) bool {
	s := &c.pending
	for s.acks.ids.n > 0 && (c.bye.wanted || !now.Before(s.flushBy)) {
		if !c.sendAck() {
			return false
		}
	}
	return true
}

func (c *Channel) sendAck() bool {
	if !c.canPost(0, urgentControl) {
		return false
	}
	var m wire.Ack
	var wantCounts bool
	m.IDs, wantCounts = c.takeAcks(wire.ListCapacity(c.cfg.PeerMessage, c.cfg.Rails), 1<<30)
	ids := m.IDs
	c.ackBuf = nil // m.IDs uses it: header must not
	m.Header = c.header(0, c.cfg.PeerMessage, wire.KindAck)
	m.IDs, m.WantCounts = ids, wantCounts
	at := len(c.out)
	c.out = m.Append(c.out)
	c.ackBuf = ids[:0]
	c.send(0, at, posted{})
	return true
}

// sendCredit posts CREDIT when half a window of a rail is not reported, or the peer has set
// WANT_COUNTS, and no message before in this pump carried the counts.
func (c *Channel) sendCredit(now time.Time) {
	u := urgentCounts
	due := !c.countsBy.IsZero() && !now.Before(c.countsBy)
	for i := range c.cfg.Rails {
		due = due || c.owesCounts(i)
	}
	if c.owesCounts(0) {
		u = urgentCredit
	}
	if !due || !c.canPost(0, u) {
		return
	}
	var m wire.Credit
	m.Header = c.header(0, m.Length(), wire.KindCredit)
	at := len(c.out)
	c.out = m.Append(c.out)
	c.send(0, at, posted{})
}

// sendFinals posts CANCELLED and ERROR after the writes of a rail.
func (c *Channel) sendFinals(rail int) bool {
	for {
		s := c.shares.first(sharesToEnd.on(rail))
		if s == none {
			return true
		}
		if !c.canPost(rail, regularMessage) {
			return false
		}
		r := c.shares.at(s).request
		a := c.requests.at(r)
		at := len(c.out)
		if a.cancelled {
			m := wire.Cancelled{Each: true}
			m.IDs = wire.IDs(nil).Append(a.id)
			m.Header = c.header(rail, m.Length(), wire.KindCancelled)
			c.out = m.Append(c.out)
		} else {
			c.appendError(rail, a, true)
		}
		c.closeShare(s)
		a.inFlight++
		c.send(rail, at, posted{kind: postContent, request: r})
	}
}

// sendContent posts writes on a rail, a chunk of each share in turn, as far as Outstanding
// and places allow. It returns false when a last write waits for a credit.
func (c *Channel) sendContent(rail int) bool {
	q := &c.rails[rail]
	for {
		credit := c.credits(rail) > c.reserved(rail, regularWrite)
		q.starved = !credit && c.shares.first(sharesLast.on(rail)) != none
		s, last := c.nextShare(rail, credit)
		if s == none {
			return !q.starved
		}
		x := c.shares.at(s)
		r := x.request
		a := c.requests.at(r)
		chunk := c.chunkOf(a)
		if !c.sendQueueFree(rail, regularWrite) || q.inFlight+int64(chunk) > c.cfg.Outstanding { //nolint:gosec // at most MaxChunk
			return true // a completion allows more
		}
		n := min(x.to-x.from, chunk)
		at := &a.dest.Rails[rail]
		w := Post{
			Op: verbs.OpWrite, Source: a.source, Offset: x.from, Length: uint32(n), //nolint:gosec // at most MaxChunk
			RemoteAddr: at.Addr + x.from, RKey: at.RKey,
		}
		x.from += n
		a.written = true
		a.inFlight++
		if last {
			w.Op, w.Imm = verbs.OpWriteImm, uint32(a.dest.Imm)
			c.closeShare(s)
		} else {
			c.enqueue(s)
		}
		c.post(rail, posted{kind: postContent, request: r, bytes: int64(n)}, w) //nolint:gosec // at most MaxChunk
	}
}
