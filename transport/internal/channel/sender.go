package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// ask is one request of the peer, from its REQUEST until nothing of it is posted
// and no work request under way names its source.
type ask struct {
	node
	id        uint64
	attempt   uint32
	state     askState
	hasDest   bool
	dest      wire.Dest
	value     wire.Value // what the peer expects, then what it is
	source    Source
	unstaged  bool // the source is not registered memory
	err       *status.Error
	elsewhere bool
	cancelled bool      // what it ends with over each rail is CANCELLED
	placed    bool      // META is posted
	since     time.Time // of askPlacing
	written   bool      // some of the content is posted
	open      int       // shares that have not had their last write, or what takes its place
	// shares are those of the content, by their number, while it is written; none for
	// one that has had its last.
	shares [wire.MaxRails]ref
	flying int // work requests under way that name the source, or fence it
}

type askState uint8

const (
	askAsking  askState = iota // waits for Answer
	askReady                   // in listToAnswer
	askPlacing                 // in listToPlace: META is posted; waits for REREQUEST
	askStaging                 // the destination is known; waits for Staged
	askWriting                 // content is being posted
	askEnded                   // nothing is posted but CANCELLED or ERROR on each rail
)

const (
	listToAnswer listID = iota + 1
	listToPlace
)

func (c *Channel) request(m *wire.Request) {
	_, known := c.asksByID[m.ID]
	switch {
	case m.Asker != c.cfg.PeerIncarnation:
		c.fault("REQUEST of incarnation %016x on a channel of %016x", m.Asker, c.cfg.PeerIncarnation)
	case known:
		c.fault("REQUEST twice for receive %016x", m.ID)
	case m.HasDest && int(m.Dest.N) != c.cfg.Rails:
		c.fault("REQUEST with a destination for %d rails, and the channel has %d", m.Dest.N, c.cfg.Rails)
	case c.asks.n >= 2*c.cfg.MaxWaiting:
		c.fault("it has %d requests and takes no answers", c.asks.n)
	}
	if c.state >= Leaving {
		return
	}
	r := c.asks.add()
	a := c.asks.at(r)
	*a = ask{
		node: a.node, id: m.ID, attempt: m.Attempt, hasDest: m.HasDest, dest: m.Dest,
		value: wire.Value{Dims: a.value.Dims[:0]},
	}
	c.asksByID[m.ID] = r
	if c.asks.n > c.cfg.MaxWaiting {
		c.answer(r, Answer{Err: status.Errorf(status.ResourceExhausted, "%d receives wait already, which is the limit", c.cfg.MaxWaiting)})
		return
	}
	if m.HasDest {
		m.Value.CopyTo(&a.value)
	}
	c.act(Action{Kind: ActAsk, Ask: Ask{
		ID: m.ID, Attempt: m.Attempt, Sender: m.Sender, Left: m.Left, Step: m.Step, Key: m.Key,
	}})
}

// Answer is the event that there is an answer to a request, as ActAsk wanted. It reports
// whether that goes to the peer, which may have cancelled the request meanwhile.
func (c *Channel) Answer(_ time.Time, id uint64, attempt uint32, ans Answer) (taken bool) {
	r, ok := c.asksByID[id]
	if !ok || c.asks.at(r).attempt != attempt || c.asks.at(r).state != askAsking || c.state >= Leaving {
		c.act(Action{Kind: ActDrop, Source: ans.Source})
		return false
	}
	c.answer(r, ans)
	return true
}

func (c *Channel) answer(r ref, ans Answer) {
	a := c.asks.at(r)
	a.source, a.unstaged, a.err, a.elsewhere = ans.Source, ans.Unregistered, ans.Err, ans.Elsewhere
	a.state = askReady
	if ans.Err == nil {
		fits := a.hasDest && a.value.Same(&ans.Value)
		ans.Value.CopyTo(&a.value)
		if !c.Eager(&a.value) && fits {
			c.begin(r)
			return
		}
	}
	c.asks.move(r, listToAnswer)
}

// Fail is the event that a request ends with an error although it has its answer:
// the value cannot be kept. Nothing more of it is written. What has been posted to
// its end ends well.
func (c *Channel) Fail(_ time.Time, id uint64, attempt uint32, err *status.Error) {
	r, ok := c.asksByID[id]
	if !ok || c.asks.at(r).attempt != attempt || c.state >= Leaving {
		return
	}
	a := c.asks.at(r)
	if a.state == askEnded {
		return
	}
	a.err, a.elsewhere = err, false
	if a.written {
		c.endEach(a)
		return
	}
	c.dropShares(a)
	if a.source.Handle != 0 {
		c.act(Action{Kind: ActDrop, Source: a.source})
	}
	a.source, a.state = Source{}, askReady
	c.asks.move(r, listToAnswer)
}

// Eager reports whether a value goes within a message. It depends on the Config alone
// and may be called without the lock.
func (c *Channel) Eager(v *wire.Value) bool {
	m := wire.Eager{Value: *v}
	m.Taken.N = uint8(c.cfg.Rails)                                                                                              //nolint:gosec // at most wire.MaxRails
	return v.Dead || v.Size == 0 || v.Size <= uint64(c.cfg.Eager) && uint64(m.HeadLength())+v.Size <= uint64(c.cfg.PeerMessage) //nolint:gosec // not negative
}

func (c *Channel) rerequest(m *wire.ReRequest) {
	r, ok := c.asksByID[m.ID]
	if !ok {
		return // it has ended meanwhile
	}
	a := c.asks.at(r)
	switch {
	case a.placed && a.err != nil: // its ERROR is under way
	case a.state != askPlacing:
		c.fault("REREQUEST for receive %016x without a META", m.ID)
	case !m.HasDest:
		c.letGo(r)
	case int(m.Dest.N) != c.cfg.Rails:
		c.fault("REREQUEST with a destination for %d rails, and the channel has %d", m.Dest.N, c.cfg.Rails)
	default:
		a.dest = m.Dest
		c.begin(r)
	}
}

// cancelAsk answers the peer's CANCEL: nothing is posted for the request any more
// but CANCELLED, over rail 0 alone when nothing was written, else behind the writes
// on each rail. Where the last write has been posted, that is the end.
func (c *Channel) cancelAsk(id uint64) {
	r, ok := c.asksByID[id]
	if !ok || c.state >= Leaving {
		return // its last message is under way
	}
	a := c.asks.at(r)
	switch {
	case a.state == askEnded:
		return
	case a.written:
		a.cancelled = true
		c.endEach(a)
		return
	}
	c.letGo(r)
	c.cancelled.push(id)
}

// ended is the event that a work request which names or fences the source of r has
// ended.
func (c *Channel) ended(r ref) {
	a := c.asks.at(r)
	a.flying--
	c.settle(r)
}

// settle lets a content go of which nothing is left to post or under way.
func (c *Channel) settle(r ref) {
	a := c.asks.at(r)
	if a.flying == 0 && a.open == 0 {
		c.letGo(r)
	}
}

// letGo forgets a request and lets its source go.
func (c *Channel) letGo(r ref) {
	if s := c.asks.at(r).source; s.Handle != 0 {
		c.act(Action{Kind: ActDrop, Source: s})
	}
	c.forget(r)
}

func (c *Channel) forget(r ref) {
	a := c.asks.at(r)
	c.dropShares(a)
	delete(c.asksByID, a.id)
	a.source, a.err = Source{}, nil
	c.asks.remove(r)
}

// query answers the peer's question whether its receives are known.
func (c *Channel) query(ids wire.IDs) {
	if c.state >= Leaving {
		return
	}
	for i := range ids.Count() {
		if _, known := c.asksByID[ids.At(i)]; known {
			c.waiting.push(ids.At(i))
		} else {
			c.unknown.push(ids.At(i))
		}
	}
	if n := c.waiting.n + c.unknown.n; n > 2*c.cfg.MaxWaiting {
		c.fault("it has asked %d questions and takes no answers", n)
	}
}
