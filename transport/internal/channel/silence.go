package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/transport/internal/wire"
	"github.com/tryst-rdma/tryst/verbs"
)

// What time alone does (ARCHITECTURE.md section 5, "Silence"). Every state that
// waits for the peer has a time in Deadline.

// Tick is the event that the time in Deadline has come, and that all that had completed
// by then has been told. Only here the peer is judged by what has not come, and probed: a
// process that was stopped for a while has more to read first, and its other events come
// in any order.
func (c *Channel) Tick(now time.Time) {
	if c.state >= Leaving {
		return
	}
	if !c.heard && !now.Before(c.began.Add(helloTime)) {
		c.fault("no HELLO came within %v", helloTime)
		return
	}
	if c.bye.wanted && !now.Before(c.bye.by) {
		c.close(errSaidBye(c.bye.reason))
		return
	}
	for i := range c.rails[:c.cfg.Rails] {
		if b := c.rails[i].blocked; !b.IsZero() && !now.Before(b.Add(stallTime)) {
			c.fault("it has taken nothing from rail %d for %v, while messages wait for it", i, stallTime)
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
			c.fault("it has not said within %v whether it knows of receive %016x", l.after, id)
		case listQuarantine, listGivenUp:
			c.fault("it has not said within %v that it has done with receive %016x, which was cancelled", l.after, id)
		case listAsked:
			continue // pump asks
		}
		return
	}
	if r := c.asks.first(listToPlace); r != none && !now.Before(c.asks.at(r).since.Add(placeTime)) {
		c.fault("it has not said within %v where the content of receive %016x goes", placeTime, c.asks.at(r).id)
		return
	}
	if c.probes() && !now.Before(c.lastHeard.Add(probeAfter)) {
		c.probe()
	}
}

// timed are the lists of receives that wait for the peer.
var timed = [...]struct {
	list  listID
	after time.Duration
}{
	{listQueried, queryTime},
	{listQuarantine, quarantineTime},
	{listGivenUp, stallTime},
	{listAsked, queryAfter},
}

// Deadline is when Tick is to be called, and Actions after it, although no event has
// come; the zero time for never.
func (c *Channel) Deadline() (at time.Time) {
	if c.state >= Leaving {
		return at
	}
	first := func(t time.Time) {
		if at.IsZero() || t.Before(at) {
			at = t
		}
	}
	if !c.heard {
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
	// What waits for a credit or a place goes when an event brings one: its own
	// time does not count meanwhile.
	free := c.greeted && !c.bye.posted && c.rails[0].blocked.IsZero()
	for _, l := range timed {
		if r := c.receives.first(l.list); r != none && (l.list != listAsked || free) {
			first(c.receives.at(r).since.Add(l.after))
		}
	}
	if r := c.asks.first(listToPlace); r != none {
		first(c.asks.at(r).since.Add(placeTime))
	}
	if free && !c.say.by.IsZero() {
		first(c.say.by)
	}
	if free && !c.tellBy.IsZero() && c.may(0, urgentTell) {
		first(c.tellBy)
	}
	if c.probes() {
		first(c.lastHeard.Add(probeAfter))
	}
	return at
}

// probes reports whether a probe is posted as soon as it has been silent for long.
func (c *Channel) probes() bool {
	if c.state != Up || !c.greeted || !c.outstanding() {
		return false
	}
	for i := range c.rails[:c.cfg.Rails] {
		if c.rails[i].probing || !c.places(i, urgentSay) {
			return false // a completion will come
		}
	}
	return true
}

// outstanding reports whether it matters that the peer is there.
func (c *Channel) outstanding() bool {
	return c.receives.n > 0 || c.asks.n > 0 || c.watched || c.say.unsaid()
}

// probe asks the peer's device on each rail whether it is there. It takes no
// receive and needs no key; if it fails, that is the end of the channel.
func (c *Channel) probe() {
	for i := range c.rails[:c.cfg.Rails] {
		c.rails[i].probing = true
		c.post(i, posted{kind: postProbe}, Post{Op: verbs.OpWrite})
	}
}

// sendQueries asks about receives that were not answered for long.
func (c *Channel) sendQueries(now time.Time) bool {
	for {
		r := c.receives.first(listAsked)
		if r == none || now.Before(c.receives.at(r).since.Add(queryAfter)) {
			return true
		}
		if !c.may(0, urgentNot) {
			return false
		}
		var m wire.Query
		for r != none && !now.Before(c.receives.at(r).since.Add(queryAfter)) && m.IDs.Count() < wire.ListRoom(c.cfg.PeerMessage, c.cfg.Rails) {
			m.IDs = m.IDs.Append(c.receives.at(r).id)
			c.queue(now, r, listQueried)
			r = c.receives.first(listAsked)
		}
		m.Header = c.header(0, m.Length(), wire.KindQuery)
		at := len(c.out)
		c.out = m.Append(c.out)
		c.send(0, at, posted{})
	}
}
