package channel

import (
	"maps"
	"slices"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// pump posts what can be posted, in this order: CANCEL; answers; requests; what
// ACK and CREDIT have to say if nothing else carried it; content, in turns. A
// kind that does not go for want of a credit or a place holds up those behind it on
// its rail, so that requests do not starve answers; ACK and CREDIT, which have
// credits and places of their own, are held up by nobody.
func (c *Channel) pump(now time.Time) {
	if !c.greeted && !c.sendHello() || c.bye.posted {
		return
	}
	all := c.sendCancels() && c.sendAnswers(now) &&
		(c.bye.wanted || c.sendRequests(now) && c.sendQueries(now))
	all = c.sendFinished(now) && all
	c.sendCredit(now)
	if c.bye.wanted && all {
		all = c.sendBye()
	}
	for i := range c.rails[:c.cfg.Rails] {
		stuck := !c.sendEnders(i)
		stuck = !c.sendContent(i) || stuck
		c.block(now, i, stuck || i == 0 && !all)
	}
}

// block notes whether something waits for a credit or a place on a rail.
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
	if !c.may(0, urgentSay) {
		return false
	}
	m := wire.Hello{Generation: c.cfg.Generation, From: c.cfg.OwnIncarnation, To: c.cfg.PeerIncarnation}
	m.Header = c.header(0, m.Length(), wire.KindHello)
	at := len(c.out)
	c.out = m.Append(c.out)
	c.send(0, at, posted{})
	c.greeted = true
	return true
}

func (c *Channel) sendBye() bool {
	if !c.may(0, urgentSay) {
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

// sendCancels and the like report false when they could not post all.
func (c *Channel) sendCancels() bool {
	s := &c.say.cancelled
	for s.ids.n > 0 {
		if !c.may(0, urgentSay) {
			return false
		}
		var m wire.Cancel
		m.IDs, m.Tell = s.take(nil, min(s.ids.n, wire.ListRoom(c.cfg.PeerMessage, c.cfg.Rails)))
		tell := m.Tell
		m.Header = c.header(0, m.Length(), wire.KindCancel)
		m.Tell = m.Tell || tell
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	return true
}

// ids takes up to a message full off a queue.
func (c *Channel) ids(q *queue[uint64]) (ids wire.IDs) {
	for range min(q.n, wire.ListRoom(c.cfg.PeerMessage, c.cfg.Rails)) {
		ids = ids.Append(q.pop())
	}
	return ids
}

func (c *Channel) sendAnswers(now time.Time) bool {
	for c.cancelled.n > 0 {
		if !c.may(0, urgentNot) {
			return false
		}
		var m wire.Cancelled
		m.IDs = c.ids(&c.cancelled)
		m.Header = c.header(0, m.Length(), wire.KindCancelled)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	for c.waiting.n > 0 {
		if !c.may(0, urgentNot) {
			return false
		}
		var m wire.Waiting
		m.IDs = c.ids(&c.waiting)
		m.Header = c.header(0, m.Length(), wire.KindWaiting)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	for c.unknown.n > 0 {
		if !c.may(0, urgentNot) {
			return false
		}
		var m wire.Unknown
		m.IDs = c.ids(&c.unknown)
		m.Header = c.header(0, m.Length(), wire.KindUnknown)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
	for {
		r := c.asks.first(listToAnswer)
		if r == none {
			return true
		}
		if !c.may(0, urgentNot) {
			return false
		}
		c.sendAnswer(now, r)
	}
}

func (c *Channel) sendAnswer(now time.Time, r ref) {
	a := c.asks.at(r)
	at := len(c.out)
	switch {
	case a.err != nil:
		c.appendError(0, a, false)
		c.send(0, at, posted{})
		c.letGo(r)
	case c.Eager(&a.value):
		m := wire.Eager{ID: a.id, Value: a.value}
		m.Header = c.header(0, m.HeadLength()+int(a.value.Size), wire.KindEager) //nolint:gosec // at most the eager limit
		c.out = m.AppendHead(c.out)
		c.sendWith(0, at, posted{}, a.source, uint32(a.value.Size)) //nolint:gosec // at most the eager limit
		c.letGo(r)
	default:
		m := wire.Meta{ID: a.id, Value: a.value}
		m.Header = c.header(0, m.Length(), wire.KindMeta)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
		c.asks.move(r, listToPlace)
		a.state, a.placed, a.since = askPlacing, true, now
	}
}

// appendError writes the ERROR of a request; payloads as many as fit.
func (c *Channel) appendError(rail int, a *ask, each bool) {
	m := wire.Error{ID: a.id, Code: a.err.Code(), Elsewhere: a.elsewhere, Each: each}
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
		r := c.receives.first(listToReask)
		if r == none {
			break
		}
		x := c.receives.at(r)
		if !c.may(0, urgentNot) || x.hasDest && !c.open(r) {
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
			c.queue(now, r, listAsked)
		} else {
			c.end(r)
		}
	}
	for {
		r := c.receives.first(listToAsk)
		if r == none {
			return true
		}
		x := c.receives.at(r)
		for x.riders > c.say.finished.out+wire.MaxRiders { // they go before the request, or on it
			if !c.sendFinish() {
				return false
			}
		}
		if !c.may(0, urgentNot) || x.hasDest && !c.open(r) {
			return false
		}
		m := wire.Request{
			ID: x.id, Asker: c.cfg.OwnIncarnation, Sender: x.sender, Left: x.left,
			Step: x.step, Attempt: x.attempt, HasDest: x.hasDest,
		}
		if x.hasDest {
			m.Dest, m.Value = c.wireDest(x), x.value
		}
		bare := m.Length() + len(x.key)
		if room := (c.cfg.PeerMessage - bare - 4*c.cfg.Rails) / 8; x.riders > c.say.finished.out+Mark(max(0, room)) { //nolint:gosec // not negative
			if !c.sendFinish() {
				return false
			}
			continue
		}
		m.Header = c.header(0, bare, wire.KindRequest)
		at := len(c.out)
		c.out = m.AppendHead(c.out, len(x.key))
		c.out = append(c.out, x.key...)
		c.send(0, at, posted{})
		c.queue(now, r, listAsked)
	}
}

// open gives a receive with a destination its slot.
func (c *Channel) open(r ref) bool {
	x := c.receives.at(r)
	if x.told {
		return true
	}
	x.imm, x.told = c.slots.take(r)
	return x.told
}

func (c *Channel) wireDest(x *receive) wire.Dest {
	return wire.Dest{Imm: x.imm, N: uint8(c.cfg.Rails), First: x.dest.First, Rails: x.dest.Rails} //nolint:gosec // at most wire.MaxRails
}

// sendFinished says finished ids alone, when their time has come and nothing
// carried them.
func (c *Channel) sendFinished(now time.Time) bool {
	s := &c.say
	for s.finished.ids.n > 0 && (c.bye.wanted || !now.Before(s.by)) {
		if !c.sendFinish() {
			return false
		}
	}
	return true
}

func (c *Channel) sendFinish() bool {
	if !c.may(0, urgentSay) {
		return false
	}
	var m wire.Finished
	var tell bool
	m.IDs, tell = c.ride(wire.ListRoom(c.cfg.PeerMessage, c.cfg.Rails), 1<<30)
	ids := m.IDs
	c.riders = nil // they stand in the body
	m.Header = c.header(0, c.cfg.PeerMessage, wire.KindFinished)
	m.IDs, m.Tell = ids, tell
	at := len(c.out)
	c.out = m.Append(c.out)
	c.riders = ids[:0]
	c.send(0, at, posted{})
	return true
}

// sendCredit says counts alone when half a window of a rail has not been told, or
// the peer wanted to know, and nothing else that goes now has said it.
func (c *Channel) sendCredit(now time.Time) {
	u := urgentTell
	due := !c.tellBy.IsZero() && !now.Before(c.tellBy)
	for i := range c.cfg.Rails {
		due = due || c.owed(i)
	}
	if c.owed(0) {
		u = urgentCredit
	}
	if !due || !c.may(0, u) {
		return
	}
	var m wire.Credit
	m.Header = c.header(0, m.Length(), wire.KindCredit)
	at := len(c.out)
	c.out = m.Append(c.out)
	c.send(0, at, posted{})
}

// sendEnders posts CANCELLED and ERROR behind the writes of a rail.
func (c *Channel) sendEnders(rail int) bool {
	for {
		s := c.shares.first(sharesEnded.on(rail))
		if s == none {
			return true
		}
		if !c.may(rail, urgentNot) {
			return false
		}
		r := c.shares.at(s).ask
		a := c.asks.at(r)
		at := len(c.out)
		if a.cancelled {
			m := wire.Cancelled{Each: true}
			m.IDs = wire.IDs(nil).Append(a.id)
			m.Header = c.header(rail, m.Length(), wire.KindCancelled)
			c.out = m.Append(c.out)
		} else {
			c.appendError(rail, a, true)
		}
		c.lastPosted(s)
		a.flying++
		c.send(rail, at, posted{kind: postContent, ask: r})
	}
}

// sendContent posts writes of the contents on a rail, a chunk each in turn, as far
// as bytes and places allow. It reports false when last writes wait for a credit.
func (c *Channel) sendContent(rail int) bool {
	q := &c.rails[rail]
	for {
		credit := c.credits(rail) > c.reserved(rail, urgentWrite)
		q.starved = !credit && c.shares.first(sharesLast.on(rail)) != none
		s, last := c.turnOf(rail, credit)
		if s == none {
			return !q.starved
		}
		if !c.places(rail, urgentWrite) || q.flying+int64(c.cfg.Chunk) > c.cfg.Outstanding {
			return true // a completion will come
		}
		x := c.shares.at(s)
		r := x.ask
		a := c.asks.at(r)
		n := min(x.to-x.from, uint64(c.cfg.Chunk)) //nolint:gosec // not negative
		at := &a.dest.Rails[rail]
		w := Post{
			Op: verbs.OpWrite, Source: a.source, Offset: x.from, Length: uint32(n), //nolint:gosec // at most MaxChunk
			RemoteAddr: at.Addr + x.from, RKey: at.RKey,
		}
		x.from += n
		a.written = true
		a.flying++
		if last {
			w.Op, w.Imm = verbs.OpWriteImm, uint32(a.dest.Imm)
			c.lastPosted(s)
		} else {
			c.line(s)
		}
		c.post(rail, posted{kind: postContent, ask: r, bytes: int64(n)}, w) //nolint:gosec // at most MaxChunk
	}
}
