package channel

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
)

// receive is one receive, from Receive until nothing more of it can arrive. Its list is
// its state:
//
//	listToRequest ──► listRequested ◄──► listQueried
//	                        │                 │
//	                        └───── META ──────┤
//	                                          ▼
//	                                     listPlacing ──► listToReRequest ──► listRequested
//
// A cancelled receive waits for the peer's confirmation that nothing more of it comes: in
// listQuarantine if its destination was sent, else in listCancelled.
type receive struct {
	node
	id              uint64
	attempt         uint32
	handle          uint64
	responder, left uint64
	step            int64
	key             string
	acksUpTo        Mark      // acks up to here are sent with or before the request
	since           time.Time // when it came into its list

	ended     bool // for the shell: ActEnd was given, or Cancel returned true
	gotMeta   bool // META has arrived: EAGER and another META are faults now
	hasDest   bool
	destSent  bool // the destination was sent to the peer: imm is an open slot
	dest      Dest
	imm       wire.Imm
	value     wire.Value
	railsDone uint8         // rails whose last write, CANCELLED or ERROR has arrived, one bit each
	final     *finalMessage // the first CANCELLED or ERROR; nil when there was none
}

// finalMessage is an ERROR, or CANCELLED when err is nil.
type finalMessage struct {
	err      *status.Error
	fallback bool
}

const (
	listToRequest listID = iota + 1
	listRequested
	listQueried
	listPlacing
	listToReRequest
	listQuarantine
	listCancelled
)

// CachedMeta returns the meta-data of the last large value under a key. A request for the
// key can carry a destination for such a value. The result is valid until the next event.
func (c *Channel) CachedMeta(key string) (wire.Value, bool) {
	if v := c.metas.find(key); v != nil {
		return *v, true
	}
	return wire.Value{}, false
}

// Receive is the event that a receive is requested. When it cannot be, it ends by ActEnd.
func (c *Channel) Receive(now time.Time, a Receive) {
	refuse := func(o Outcome, err error) {
		if a.Early != nil {
			c.act(Action{Kind: ActFree, Dest: a.Early.Handle})
		}
		c.act(Action{Kind: ActEnd, ID: a.ID, Attempt: a.Attempt, Handle: a.Handle, Outcome: o, Err: err})
	}
	m := wire.Request{Key: []byte(nil)}
	m.Taken.N = uint8(c.cfg.Rails) //nolint:gosec // at most wire.MaxRails
	bare := m.Length() + len(a.Key)
	switch _, known := c.byID[a.ID]; {
	case c.state >= Leaving:
		refuse(OutcomeLost, c.err)
		return
	case bare > c.cfg.PeerMessage || a.Key == "":
		refuse(OutcomeFallback, fmt.Errorf("a rendezvous key of %d bytes does not fit into a message of %d", len(a.Key), c.cfg.PeerMessage))
		return
	case len(a.Key) > wire.MaxKey:
		refuse(OutcomeFallback, fmt.Errorf("a rendezvous key of %d bytes: the most is %d", len(a.Key), wire.MaxKey))
		return
	case known:
		refuse(OutcomeFallback, fmt.Errorf("an earlier attempt of receive %016x has not ended on this channel", a.ID))
		return
	case c.receives.n >= c.cfg.MaxWaiting:
		refuse(OutcomeError, status.Passing("%d receives from %s wait already, which is the limit", c.receives.n, c.cfg.Peer))
		return
	}
	early := a.Early
	if early != nil && (a.Value.Dead || a.Value.Size == 0) {
		c.act(Action{Kind: ActFree, Dest: early.Handle}) // such a value is not written
		early = nil
	}
	if early != nil {
		m.HasDest, m.Value, m.Dest.N = true, a.Value, uint8(c.cfg.Rails) //nolint:gosec // at most wire.MaxRails
		if m.Length()+len(a.Key) > c.cfg.PeerMessage {
			c.act(Action{Kind: ActFree, Dest: early.Handle}) // the request is too long with both a long key and a large shape
			early = nil
		}
	}
	r := c.receives.add()
	x := c.receives.at(r)
	*x = receive{
		node: x.node, id: a.ID, attempt: a.Attempt, handle: a.Handle, responder: a.Responder, left: a.Left, step: a.Step, key: a.Key,
		value: wire.Value{Dims: x.value.Dims[:0]},
	}
	if early != nil {
		x.hasDest, x.dest = true, *early
		a.Value.CopyTo(&x.value)
	}
	if len(a.Acks) > 0 {
		c.addAcks(now.Add(ackDelay), a.Acks)
		x.acksUpTo = c.pending.acks.end()
	}
	c.byID[a.ID] = r
	c.setList(now, r, listToRequest)
}

// setList moves a receive to another list.
func (c *Channel) setList(now time.Time, r ref, l listID) {
	x := c.receives.at(r)
	if x.list == listQuarantine {
		c.quarantined -= int64(x.value.Size) //nolint:gosec // checked
	}
	if l == listQuarantine {
		c.quarantined += int64(x.value.Size) //nolint:gosec // checked
	}
	x.since = now
	c.receives.move(r, l)
}

// findAttempt finds a receive by id and attempt.
func (c *Channel) findAttempt(id uint64, attempt uint32) (ref, *receive) {
	r, ok := c.byID[id]
	if !ok {
		return none, nil
	}
	x := c.receives.at(r)
	if x.attempt != attempt {
		return none, nil
	}
	return r, x
}

// Place answers ActPlace with a destination for the receive.
func (c *Channel) Place(now time.Time, id uint64, attempt uint32, to Dest) {
	r, x := c.findAttempt(id, attempt)
	if x == nil || x.list != listPlacing || c.state >= Leaving {
		c.act(Action{Kind: ActFree, Dest: to.Handle})
		return
	}
	x.hasDest, x.dest = true, to
	c.setList(now, r, listToReRequest)
}

// NoPlace answers ActPlace when there is no memory for the receive. The receive ends, and
// REREQUEST without destination makes the peer forget the request. That is not a cancel.
func (c *Channel) NoPlace(now time.Time, id uint64, attempt uint32) {
	r, x := c.findAttempt(id, attempt)
	if x == nil || x.list != listPlacing || c.state >= Leaving {
		return
	}
	x.ended = true
	c.act(Action{Kind: ActEnd, ID: id, Attempt: attempt, Handle: x.handle, Outcome: OutcomeFallback,
		Err: fmt.Errorf("no registered memory is left for %d bytes", x.value.Size)})
	c.setList(now, r, listToReRequest)
}

// Cancel is the event that a receive is no longer wanted. It reports whether that ended
// the receive: then no ActEnd follows, CANCEL is sent, and ActFree returns the destination
// when the peer cannot write into it any more. CANCEL does not wait for SendCancels: the
// destination is in quarantine until the peer replies.
func (c *Channel) Cancel(now time.Time, id uint64, attempt uint32) bool {
	r, x := c.findAttempt(id, attempt)
	if x == nil || x.ended {
		return false
	}
	if x.list != listToRequest {
		c.queueCancel(id)
	}
	c.cancel(now, r)
	return true
}

// cancel ends a receive for the shell. A receive whose REQUEST is not posted is removed at
// once.
func (c *Channel) cancel(now time.Time, r ref) {
	x := c.receives.at(r)
	x.ended = true
	if x.hasDest && !x.destSent {
		c.freeDest(r)
	}
	switch {
	case x.list == listToRequest:
		c.end(r)
	case x.destSent:
		c.setList(now, r, listQuarantine)
		if c.quarantined > c.cfg.QuarantineBytes {
			c.close(fmt.Errorf("%s, channel generation %d: the destinations of cancelled receives that it has not confirmed have %d bytes, the limit is %d",
				c.cfg.Peer, c.cfg.Generation, c.quarantined, c.cfg.QuarantineBytes))
		}
	default:
		c.setList(now, r, listCancelled)
	}
}

// freeDest returns the destination of a receive, if it has one, to the shell.
func (c *Channel) freeDest(r ref) {
	x := c.receives.at(r)
	if !x.hasDest {
		return
	}
	c.act(Action{Kind: ActFree, Dest: x.dest.Handle})
	if x.destSent {
		c.slots.release(x.imm)
	}
	x.hasDest, x.destSent, x.dest = false, false, Dest{}
}

// end removes a receive that has ended for the shell and of which nothing more can arrive.
func (c *Channel) end(r ref) {
	x := c.receives.at(r)
	if x.list == listQuarantine {
		c.setList(x.since, r, noList)
	}
	c.freeDest(r)
	delete(c.byID, x.id)
	x.key, x.final = "", nil
	c.receives.remove(r)
}

// endWith removes a receive. The ActEnd that a completes is given unless the receive has
// ended for the shell before. The destination is returned first: it may be the receiver's own
// memory, which the receiver may use again after ActEnd.
func (c *Channel) endWith(r ref, a Action) {
	c.freeDest(r)
	x := c.receives.at(r)
	if !x.ended {
		a.Kind, a.ID, a.Attempt, a.Handle = ActEnd, x.id, x.attempt, x.handle
		c.act(a)
	}
	c.end(r)
}

// findOutstanding finds the receive that a message of the peer answers. It returns nil
// when the receive has ended, which is no fault, and after a fault: the receive was not
// requested yet, or has ended on a rail.
func (c *Channel) findOutstanding(kind wire.Kind, id uint64) (ref, *receive) {
	r, ok := c.byID[id]
	if !ok {
		return none, nil
	}
	switch x := c.receives.at(r); {
	case x.list == listToRequest:
		c.fault("%v for receive %016x, which was not requested yet", kind, id)
	case x.railsDone != 0:
		c.fault("%v for receive %016x, which has ended on rail %s", kind, id, railsOf(x.railsDone))
	default:
		return r, x
	}
	return none, nil
}

func (c *Channel) onEager(m *wire.Eager) {
	r, x := c.findOutstanding(wire.KindEager, m.ID)
	if x == nil {
		return
	}
	if x.gotMeta {
		c.fault("EAGER for receive %016x after its META", m.ID)
		return
	}
	if !m.Value.Dead {
		c.metas.drop(x.key) // the value has become small
	}
	c.endWith(r, Action{Outcome: OutcomeEager, Value: m.Value, Content: m.Content})
}

func (c *Channel) onMeta(now time.Time, m *wire.Meta) {
	r, x := c.findOutstanding(wire.KindMeta, m.ID)
	switch {
	case x == nil:
		return
	case x.gotMeta:
		c.fault("META twice for receive %016x", m.ID)
		return
	case m.Value.Dead || m.Value.Size == 0:
		c.fault("META for receive %016x, whose value is without a content", m.ID)
		return
	}
	x.gotMeta = true
	// The peer does not write into an early destination after META (PROTOCOL.md
	// section 8.3).
	if x.list == listQuarantine {
		c.setList(now, r, listCancelled)
	}
	c.freeDest(r)
	m.Value.CopyTo(&x.value)
	if !m.Value.Proto {
		c.metas.put(x.key, &m.Value)
	}
	if x.ended {
		return // CANCELLED will come
	}
	c.setList(now, r, listPlacing)
	if c.state < Leaving {
		c.act(Action{Kind: ActPlace, ID: x.id, Attempt: x.attempt, Handle: x.handle, Value: m.Value})
	}
}

func (c *Channel) onError(now time.Time, rail int, m *wire.Error) {
	r, x := c.findFinal(rail, wire.KindError, m.ID, m.Each)
	if x == nil {
		return
	}
	if x.final == nil || x.final.err == nil {
		x.final = &finalMessage{err: errorOf(m), fallback: m.Fallback}
	}
	c.railDone(now, r, rail, m.Each)
}

func (c *Channel) onCancelled(now time.Time, rail int, m *wire.Cancelled) {
	for i := range m.IDs.Count() {
		id := m.IDs.At(i)
		r, x := c.findFinal(rail, wire.KindCancelled, id, m.Each)
		if x == nil {
			continue
		}
		if !x.ended {
			c.fault("CANCELLED for receive %016x, which was not cancelled", id)
			return
		}
		if x.final == nil {
			x.final = &finalMessage{}
		}
		c.railDone(now, r, rail, m.Each)
	}
}

// findFinal finds the receive that an ERROR or CANCELLED is for. each is the flag EACH.
func (c *Channel) findFinal(rail int, kind wire.Kind, id uint64, each bool) (ref, *receive) {
	if !each {
		return c.findOutstanding(kind, id)
	}
	r, ok := c.byID[id]
	if !ok {
		return none, nil
	}
	x := c.receives.at(r)
	if !x.destSent || !c.expects(x, rail) {
		c.fault("%v over each rail for receive %016x, which expects nothing more on rail %d", kind, id, rail)
		return none, nil
	}
	return r, x
}

// Imm is the event that a WRITE_WITH_IMM of the peer has consumed a posted receive. It is
// the last write of a share: the whole share has arrived.
func (c *Channel) Imm(now time.Time, rail int, imm uint32) {
	if c.state == Gone || rail < 0 || rail >= c.cfg.Rails || !c.countReceived(now, rail) {
		return
	}
	i := wire.Imm(imm)
	r := c.slots.find(i)
	if r == none {
		c.fault("a write into %v, which is not open: its bytes were written to the wrong place", i)
		return
	}
	x := c.receives.at(r)
	if !c.expects(x, rail) {
		c.fault("a last write of receive %016x on rail %d, which had its last or carries no share", x.id, rail)
		return
	}
	c.railDone(now, r, rail, true)
}

// railDone notes that the last write of a receive, or the message that replaces it, has
// arrived on a rail. Without each, the message is for all rails.
func (c *Channel) railDone(now time.Time, r ref, rail int, each bool) {
	x := c.receives.at(r)
	x.railsDone |= 1 << rail
	if each && !c.complete(x) {
		if x.list == listRequested {
			c.setList(now, r, listRequested) // content arrives: QUERY can wait
		}
		return
	}
	switch e := x.final; {
	case e != nil && e.err != nil && e.fallback:
		c.endWith(r, Action{Outcome: OutcomeFallback, ByPeer: true, Err: e.err})
	case e != nil && e.err != nil:
		c.endWith(r, Action{Outcome: OutcomeError, ByPeer: true, Err: e.err})
	case x.ended:
		c.end(r)
	default:
		a := Action{Outcome: OutcomeWritten, Value: x.value, Dest: x.dest.Handle}
		c.slots.release(x.imm)
		x.hasDest, x.destSent, x.dest = false, false, Dest{}
		c.endWith(r, a)
	}
}

// onQueryReply processes WAITING and UNKNOWN.
func (c *Channel) onQueryReply(now time.Time, kind wire.Kind, ids wire.IDs) {
	for i := range ids.Count() {
		id := ids.At(i)
		r, ok := c.byID[id]
		if !ok || c.state >= Leaving {
			continue
		}
		x := c.receives.at(r)
		switch {
		case x.list == listToRequest:
			c.fault("%v for receive %016x, which was not requested yet", kind, id)
			return
		case kind == wire.KindUnknown && !x.ended:
			c.fault("UNKNOWN for receive %016x, which is outstanding", id)
			return
		case x.list == listQueried:
			c.setList(now, r, listRequested)
		}
	}
}
