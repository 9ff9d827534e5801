package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// ask is one request of the peer, from its REQUEST until nothing of it is posted
// and no work request under way names its source.
type request struct {
	node
	id         uint64
	attempt    uint32
	state      requestState
	hasDest    bool
	dest       wire.Dest
	value      wire.Value // what the peer expects, then what it is
	source     Source
	unstaged   bool // the source is not registered memory
	err        *status.Error
	fallback   bool
	cancelled  bool      // what it ends with over each rail is CANCELLED
	metaSent   bool      // META is posted
	since      time.Time // of requestAwaitsDest
	written    bool      // some of the content is posted
	openShares int       // shares that have not had their last write, or what takes its place
	// shares are those of the content, by their number, while it is written; none for
	// one that has had its last.
	shares   [wire.MaxRails]ref
	inFlight int // work requests under way that name the source, or fence it
}

type requestState uint8

const (
	requestWaiting    requestState = iota // waits for Answer
	requestAnswered                       // in listToRespond
	requestAwaitsDest                     // in listAwaitsDest: META is posted; waits for REREQUEST
	requestStaging                        // the destination is known; waits for Staged
	requestWriting                        // content is being posted
	requestEnding                         // nothing is posted but CANCELLED or ERROR on each rail
)

const (
	listToRespond listID = iota + 1
	listAwaitsDest
)

func (c *Channel) onRequest(m *wire.Request) {
	_, known := c.requestsByID[m.ID]
	switch {
	case m.Requester != c.cfg.PeerIncarnation:
		c.fault("REQUEST of incarnation %016x on a channel of %016x", m.Requester, c.cfg.PeerIncarnation)
	case known:
		c.fault("REQUEST twice for receive %016x", m.ID)
	case m.HasDest && int(m.Dest.N) != c.cfg.Rails:
		c.fault("REQUEST with a destination for %d rails, and the channel has %d", m.Dest.N, c.cfg.Rails)
	case c.requests.n >= 2*c.cfg.MaxWaiting:
		c.fault("it has %d requests and takes no answers", c.requests.n)
	}
	if c.state >= Leaving {
		return
	}
	r := c.requests.add()
	a := c.requests.at(r)
	*a = request{
		node: a.node, id: m.ID, attempt: m.Attempt, hasDest: m.HasDest, dest: m.Dest,
		value: wire.Value{Dims: a.value.Dims[:0]},
	}
	c.requestsByID[m.ID] = r
	if c.requests.n > c.cfg.MaxWaiting {
		c.respond(r, Response{Err: status.Errorf(status.ResourceExhausted, "%d receives wait already, which is the limit", c.cfg.MaxWaiting)})
		return
	}
	if m.HasDest {
		m.Value.CopyTo(&a.value)
	}
	c.act(Action{Kind: ActRequest, Request: Request{
		ID: m.ID, Attempt: m.Attempt, Responder: m.Responder, Left: m.Left, Step: m.Step, Key: m.Key,
	}})
}

// Answer is the event that there is an answer to a request, as ActRequest wanted. It reports
// whether that goes to the peer, which may have cancelled the request meanwhile.
func (c *Channel) Respond(_ time.Time, id uint64, attempt uint32, ans Response) (taken bool) {
	r, ok := c.requestsByID[id]
	if !ok || c.requests.at(r).attempt != attempt || c.requests.at(r).state != requestWaiting || c.state >= Leaving {
		c.act(Action{Kind: ActDrop, Source: ans.Source})
		return false
	}
	c.respond(r, ans)
	return true
}

func (c *Channel) respond(r ref, ans Response) {
	a := c.requests.at(r)
	a.source, a.unstaged, a.err, a.fallback = ans.Source, ans.Unregistered, ans.Err, ans.Fallback
	a.state = requestAnswered
	if ans.Err == nil {
		fits := a.hasDest && a.value.Same(&ans.Value)
		ans.Value.CopyTo(&a.value)
		if !c.Eager(&a.value) && fits {
			c.startContent(r)
			return
		}
	}
	c.requests.move(r, listToRespond)
}

// Fail is the event that a request ends with an error although it has its answer:
// the value cannot be kept. Nothing more of it is written. What has been posted to
// its end ends well.
func (c *Channel) Fail(_ time.Time, id uint64, attempt uint32, err *status.Error) {
	r, ok := c.requestsByID[id]
	if !ok || c.requests.at(r).attempt != attempt || c.state >= Leaving {
		return
	}
	a := c.requests.at(r)
	if a.state == requestEnding {
		return
	}
	a.err, a.fallback = err, false
	if a.written {
		c.endOnRails(a)
		return
	}
	c.dropShares(a)
	if a.source.Handle != 0 {
		c.act(Action{Kind: ActDrop, Source: a.source})
	}
	a.source, a.state = Source{}, requestAnswered
	c.requests.move(r, listToRespond)
}

// Eager reports whether a value goes within a message. It depends on the Config alone
// and may be called without the lock.
func (c *Channel) Eager(v *wire.Value) bool {
	m := wire.Eager{Value: *v}
	m.Taken.N = uint8(c.cfg.Rails)                                                                                              //nolint:gosec // at most wire.MaxRails
	return v.Dead || v.Size == 0 || v.Size <= uint64(c.cfg.Eager) && uint64(m.HeadLength())+v.Size <= uint64(c.cfg.PeerMessage) //nolint:gosec // not negative
}

func (c *Channel) onReRequest(m *wire.ReRequest) {
	r, ok := c.requestsByID[m.ID]
	if !ok {
		return // it has ended meanwhile
	}
	a := c.requests.at(r)
	switch {
	case a.metaSent && a.err != nil: // its ERROR is under way
	case a.state != requestAwaitsDest:
		c.fault("REREQUEST for receive %016x without a META", m.ID)
	case !m.HasDest:
		c.release(r)
	case int(m.Dest.N) != c.cfg.Rails:
		c.fault("REREQUEST with a destination for %d rails, and the channel has %d", m.Dest.N, c.cfg.Rails)
	default:
		a.dest = m.Dest
		c.startContent(r)
	}
}

// cancelAsk answers the peer's CANCEL: nothing is posted for the request any more
// but CANCELLED, over rail 0 alone when nothing was written, else behind the writes
// on each rail. Where the last write has been posted, that is the end.
func (c *Channel) onCancel(id uint64) {
	r, ok := c.requestsByID[id]
	if !ok || c.state >= Leaving {
		return // its last message is under way
	}
	a := c.requests.at(r)
	switch {
	case a.state == requestEnding:
		return
	case a.written:
		a.cancelled = true
		c.endOnRails(a)
		return
	}
	c.release(r)
	c.cancelledIDs.push(id)
}

// ended is the event that a work request which names or fences the source of r has
// ended.
func (c *Channel) workDone(r ref) {
	a := c.requests.at(r)
	a.inFlight--
	c.settle(r)
}

// settle lets a content go of which nothing is left to post or under way.
func (c *Channel) settle(r ref) {
	a := c.requests.at(r)
	if a.inFlight == 0 && a.openShares == 0 {
		c.release(r)
	}
}

// letGo forgets a request and lets its source go.
func (c *Channel) release(r ref) {
	if s := c.requests.at(r).source; s.Handle != 0 {
		c.act(Action{Kind: ActDrop, Source: s})
	}
	c.forget(r)
}

func (c *Channel) forget(r ref) {
	a := c.requests.at(r)
	c.dropShares(a)
	delete(c.requestsByID, a.id)
	a.source, a.err = Source{}, nil
	c.requests.remove(r)
}

// query answers the peer's question whether its receives are known.
func (c *Channel) onQuery(ids wire.IDs) {
	if c.state >= Leaving {
		return
	}
	for i := range ids.Count() {
		if _, known := c.requestsByID[ids.At(i)]; known {
			c.waitingIDs.push(ids.At(i))
		} else {
			c.unknownIDs.push(ids.At(i))
		}
	}
	if n := c.waitingIDs.n + c.unknownIDs.n; n > 2*c.cfg.MaxWaiting {
		c.fault("it has asked %d questions and takes no answers", n)
	}
}
