package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// Timeouts, probes and QUERY (PROTOCOL.md section 8.4, "Silence"). Every state that waits
// for the peer has a time in Deadline.

// Tick is the event that the time of Deadline has come. The shell first passes all events
// that completed by then. Only Tick checks timeouts and probes the peer: a process that
// was stopped for a while must process what has arrived before, in any order.
func (c *Channel) Tick(now time.Time) {
	if c.state >= Leaving {
		return
	}
	if !c.helloReceived && !now.Before(c.began.Add(helloTime)) {
		c.silent("no HELLO came within %v", helloTime)
		return
	}
	if c.bye.wanted && !now.Before(c.bye.by) {
		c.close(errByeSent(c.bye.reason))
		return
	}
	for i := range c.rails[:c.cfg.Rails] {
		if b := c.rails[i].blocked; !b.IsZero() && !now.Before(b.Add(stallTime)) {
			c.silent("it has taken nothing from rail %d for %v, while messages wait for credits", i, stallTime)
			return
		}
	}
	for _, l := range timed {
		r := c.receives.first(l.list)
		if r == none || now.Before(c.receives.at(r).since.Add(l.after)) {
			continue
		}
		id := c.receives.at(r).id
		switch l.list {
		case listQueried:
			c.silent("it has not answered QUERY for receive %016x within %v", id, l.after)
		case listQuarantine, listCancelled:
			c.silent("it has not confirmed the cancel of receive %016x within %v", id, l.after)
		case listRequested:
			continue // sendQueries sends QUERY
		}
		return
	}
	if r := c.requests.first(listAwaitsDest); r != none && !now.Before(c.requests.at(r).since.Add(destTime)) {
		c.silent("it has not sent the destination of receive %016x within %v", c.requests.at(r).id, destTime)
		return
	}
	if c.shouldProbe() && !now.Before(c.lastContact.Add(probeAfter)) {
		c.probe()
	}
}

// timed are the lists of receives that wait for the peer, and how long.
var timed = [...]struct {
	list  listID
	after time.Duration
}{
	{listQueried, queryTime},
	{listQuarantine, quarantineTime},
	{listCancelled, stallTime},
	{listRequested, queryAfter},
}

// Deadline returns when the shell is to call Tick, and Actions after it, if no event comes
// before. The zero time means never.
func (c *Channel) Deadline() (at time.Time) {
	if c.state >= Leaving {
		return at
	}
	first := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if !c.helloReceived {
		first(c.began.Add(helloTime))
	}
	if c.bye.wanted {
		first(c.bye.by)
	}
	for i := range c.rails[:c.cfg.Rails] {
		if b := c.rails[i].blocked; !b.IsZero() {
			first(b.Add(stallTime))
		}
	}
	// A message that waits for a credit or a place is sent when an event brings one, so
	// its own time does not matter meanwhile.
	free := c.helloSent && !c.bye.posted && c.rails[0].blocked.IsZero()
	for _, l := range timed {
		if r := c.receives.first(l.list); r != none && (l.list != listRequested || free) {
			first(c.receives.at(r).since.Add(l.after))
		}
	}
	if r := c.requests.first(listAwaitsDest); r != none {
		first(c.requests.at(r).since.Add(destTime))
	}
	if free && !c.pending.flushBy.IsZero() {
		first(c.pending.flushBy)
	}
	if free && !c.countsBy.IsZero() && c.canPost(0, urgentCounts) {
		first(c.countsBy)
	}
	if c.shouldProbe() {
		first(c.lastContact.Add(probeAfter))
	}
	return at
}

// shouldProbe reports whether a probe is to be posted after probeAfter of silence.
func (c *Channel) shouldProbe() bool {
	if c.state != Up || !c.helloSent || !c.outstanding() {
		return false
	}
	for i := range c.rails[:c.cfg.Rails] {
		if c.rails[i].probing || !c.sendQueueFree(i, urgentControl) {
			return false // a completion will come
		}
	}
	return true
}

// outstanding reports whether anything waits for the peer.
func (c *Channel) outstanding() bool {
	return c.receives.n > 0 || c.requests.n > 0 || c.watched || c.pending.outstanding()
}

// probe posts a write of length 0 on each rail. It consumes no receive and needs no rkey.
// The peer's device acknowledges it; if it fails, the shell leaves the channel.
func (c *Channel) probe() {
	for i := range c.rails[:c.cfg.Rails] {
		c.rails[i].probing = true
		c.post(i, posted{kind: postProbe}, Post{Op: verbs.OpWrite})
	}
}

// sendQueries sends QUERY for receives that have waited for queryAfter.
func (c *Channel) sendQueries(now time.Time) bool {
	for {
		r := c.receives.first(listRequested)
		if r == none || now.Before(c.receives.at(r).since.Add(queryAfter)) {
			return true
		}
		if !c.canPost(0, regularMessage) {
			return false
		}
		var m wire.Query
		for r != none && !now.Before(c.receives.at(r).since.Add(queryAfter)) && m.IDs.Count() < wire.ListCapacity(c.cfg.PeerMessage, c.cfg.Rails) {
			m.IDs = m.IDs.Append(c.receives.at(r).id)
			c.setList(now, r, listQueried)
			r = c.receives.first(listRequested)
		}
		m.Header = c.header(0, m.Length(), wire.KindQuery)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
}
