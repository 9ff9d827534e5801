package channel

import (
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
)

// request is one request of the peer, from its REQUEST until nothing of it is left to post
// and no work request in flight uses its source.
type request struct {
	node
	id         uint64
	attempt    uint32
	state      requestState
	hasDest    bool
	dest       wire.Dest
	value      wire.Value // what the peer expects; once answered, what it is
	source     Source
	unstaged   bool // the source is not in registered memory
	err        *status.Error
	fallback   bool
	cancelled  bool      // it ends with CANCELLED on each rail, not with ERROR
	metaSent   bool      // META is posted
	since      time.Time // when META was posted
	written    bool      // a write of the content is posted
	openShares int       // shares whose last write, or the message that replaces it, is not posted
	// shares are the shares of the content by number, while it is written; none for a
	// closed one.
	shares   [wire.MaxRails]ref
	inFlight int // work requests in flight that use the source, or follow such a one
}

type requestState uint8

const (
	requestWaiting    requestState = iota // for Respond
	requestAnswered                       // in listToRespond: EAGER, META or ERROR is to be posted
	requestAwaitsDest                     // in listAwaitsDest: META is posted, REREQUEST has not arrived
	requestStaging                        // the destination is known; waits for Staged or NotStaged
	requestWriting                        // writes are being posted
	requestEnding                         // only CANCELLED or ERROR is still posted on each rail
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
		c.fault("it has %d requests and takes no responses", c.requests.n)
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
		c.respond(r, Response{Err: status.Passing("%d receives wait already, which is the limit", c.cfg.MaxWaiting)})
		return
	}
	if m.HasDest {
		m.Value.CopyTo(&a.value)
	}
	c.act(Action{Kind: ActRequest, Request: Request{
		ID: m.ID, Attempt: m.Attempt, Responder: m.Responder, Left: m.Left, Step: m.Step, Key: m.Key,
	}})
}

// Respond answers ActRequest. It reports whether the response goes to the peer: not when
// the peer has cancelled the request meanwhile, or the channel was left. Then ActDrop
// returns its source.
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

// Fail is the event that a request ends with an error although it has a response, because
// the value cannot be kept. Nothing more of it is written. A share whose last write is
// posted already completes.
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

// Redirect is the event that a better channel to the peer replaces this one. Requests without a
// response end with err, upon which the requester sends them there. Contents that were begun go on here.
func (c *Channel) Redirect(_ time.Time, err *status.Error) {
	if c.state >= Leaving {
		return
	}
	c.requests.each(func(r ref, a *request) {
		if a.state == requestWaiting {
			c.act(Action{Kind: ActDetach, ID: a.id, Attempt: a.attempt})
			c.respond(r, Response{Err: err, Fallback: true})
		}
	})
}

// Idle reports whether the channel is up and nothing of either side is under way on it: no
// receive, no request, and no id that is to be sent or whose confirmation the shell awaits.
func (c *Channel) Idle() bool {
	return c.state == Up && !c.bye.wanted && c.receives.n == 0 && c.requests.n == 0 && !c.pending.outstanding() &&
		c.cancelledIDs.n+c.waitingIDs.n+c.unknownIDs.n == 0
}

// Eager reports whether a value is sent in EAGER. It depends on the Config alone and may be
// called without the lock.
func (c *Channel) Eager(v *wire.Value) bool {
	m := wire.Eager{Value: *v}
	m.Taken.N = uint8(c.cfg.Rails)                                                                                              //nolint:gosec // at most wire.MaxRails
	return v.Dead || v.Size == 0 || v.Size <= uint64(c.cfg.Eager) && uint64(m.HeadLength())+v.Size <= uint64(c.cfg.PeerMessage) //nolint:gosec // not negative
}

func (c *Channel) onReRequest(m *wire.ReRequest) {
	r, ok := c.requestsByID[m.ID]
	if !ok {
		return // the request has ended meanwhile
	}
	a := c.requests.at(r)
	switch {
	case a.metaSent && a.err != nil: // its ERROR is in flight
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

// onCancel processes one id of CANCEL. From now on only CANCELLED is posted for the
// request: over rail 0 when nothing was written, else after the writes on each rail whose
// last write is not posted.
func (c *Channel) onCancel(id uint64) {
	r, ok := c.requestsByID[id]
	if !ok || c.state >= Leaving {
		return // the message that ends it is in flight
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

// workDone notes that a work request that counts in inFlight has completed.
func (c *Channel) workDone(r ref) {
	a := c.requests.at(r)
	a.inFlight--
	c.settle(r)
}

// settle releases a request of which nothing is left to post or in flight.
func (c *Channel) settle(r ref) {
	a := c.requests.at(r)
	if a.inFlight == 0 && a.openShares == 0 {
		c.release(r)
	}
}

// release removes a request and drops its source.
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

// onQuery queues WAITING or UNKNOWN for each id.
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
		c.fault("it has sent QUERY for %d receives and takes no answers", n)
	}
}
