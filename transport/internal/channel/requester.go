package channel

import (
	"fmt"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// receive is one receive, from Receive until it has ended on the wire. Its list is
// its state:
//
//	listToRequest ──► listRequested ◄──► listQueried
//	                 │ META          │
//	                 ▼               ▼
//	             listPlacing ──► listToReRequest ──► listRequested
//
// and, when it was cancelled, listQuarantine with a destination that the peer
// knows, else listCancelled, until the peer's word that nothing more comes.
type receive struct {
	node
	id              uint64
	attempt         uint32
	handle          uint64
	responder, left uint64
	step            int64
	key             string
	acksUpTo        Mark      // finished ids up to here go with or before the request
	since           time.Time // that it is in its list

	ended     bool // it has ended for the shell: only the wire has to end
	gotMeta   bool // there was a META: nothing but content comes now
	hasDest   bool
	destSent  bool // the peer knows the destination: imm is an open slot
	dest      Dest
	imm       wire.Imm
	value     wire.Value
	railsDone uint8         // rails that have brought their last, one bit each
	final     *finalMessage // what CANCELLED or ERROR over each rail said
}

// wireError is what an ERROR said. nil Err: CANCELLED.
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

// Known tells the meta-data of the value that came last under a key, when it is
// worth a destination. It is good until the next event.
func (c *Channel) CachedMeta(key string) (wire.Value, bool) {
	if v := c.metas.find(key); v != nil {
		return *v, true
	}
	return wire.Value{}, false
}

// Receive is the event that a receive begins.
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
		refuse(OutcomeFallback, fmt.Errorf("a rendezvous key of %d bytes: a request has room for %d", len(a.Key), wire.MaxKey))
		return
	case known:
		refuse(OutcomeFallback, fmt.Errorf("an earlier attempt of receive %016x has not ended on this channel", a.ID))
		return
	case c.receives.n >= c.cfg.MaxWaiting:
		refuse(OutcomeError, status.Errorf(status.ResourceExhausted, "%d receives from %s wait already, which is the limit", c.receives.n, c.cfg.Peer))
		return
	}
	early := a.Early
	if early != nil && (a.Value.Dead || a.Value.Size == 0) {
		c.act(Action{Kind: ActFree, Dest: early.Handle}) // nothing would be written
		early = nil
	}
	if early != nil {
		m.HasDest, m.Value, m.Dest.N = true, a.Value, uint8(c.cfg.Rails) //nolint:gosec // at most wire.MaxRails
		if m.Length()+len(a.Key) > c.cfg.PeerMessage {
			c.act(Action{Kind: ActFree, Dest: early.Handle}) // a long key and a large shape: one at a time
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

// queue moves a receive to another list.
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

// attempt finds a receive.
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

// Place is the event that there is a destination for a receive, as ActPlace wanted.
func (c *Channel) Place(now time.Time, id uint64, attempt uint32, to Dest) {
	r, x := c.findAttempt(id, attempt)
	if x == nil || x.list != listPlacing || c.state >= Leaving {
		c.act(Action{Kind: ActFree, Dest: to.Handle})
		return
	}
	x.hasDest, x.dest = true, to
	c.setList(now, r, listToReRequest)
}

// NoPlace is the event that there is no memory for a receive. It ends here; the
// peer is told to forget it, which is no cancel.
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

// Cancel is the event that a receive is not wanted any more. It reports whether
// that ended it: then there is no ActEnd, and its destination comes back by
// ActFree when the peer cannot write into it any more. The peer is told.
func (c *Channel) Cancel(now time.Time, id uint64, attempt uint32) bool {
	r, x := c.findAttempt(id, attempt)
	if x == nil || x.ended {
		return false
	}
	if x.list != listToRequest {
		c.pending.cancels.ids.push(id)
	}
	c.cancel(now, r)
	return true
}

// cancel ends a receive for the shell. What the peer does not know of ends at once.
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
			c.close(fmt.Errorf("%s, channel generation %d: the memory of cancelled receives that wait for its word came to %d bytes, the limit is %d",
				c.cfg.Peer, c.cfg.Generation, c.quarantined, c.cfg.QuarantineBytes))
		}
	default:
		c.setList(now, r, listCancelled)
	}
}

// free gives a receive's destination back.
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

// end forgets a receive, which has ended for the shell and on the wire.
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

// endWith ends a receive by an action, unless it has ended for the shell before.
func (c *Channel) endWith(r ref, a Action) {
	x := c.receives.at(r)
	if !x.ended {
		a.Kind, a.ID, a.Attempt, a.Handle = ActEnd, x.id, x.attempt, x.handle
		c.act(a)
	}
	c.end(r)
}

// answers finds the receive that a message of the peer is for: one that was asked
// and may be answered so. nil for one that has ended, which is no fault; or after a
// fault.
func (c *Channel) findOutstanding(kind wire.Kind, id uint64) (ref, *receive) {
	r, ok := c.byID[id]
	if !ok {
		return none, nil
	}
	switch x := c.receives.at(r); {
	case x.list == listToRequest:
		c.fault("%v for receive %016x, which was not asked yet", kind, id)
	case x.railsDone != 0:
		c.fault("%v for receive %016x, of which rail %s has brought its last", kind, id, railsOf(x.railsDone))
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
		c.metas.drop(x.key) // it has become small
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
		c.fault("META for receive %016x without a content to place", m.ID)
		return
	}
	x.gotMeta = true
	// Nothing was written into an early destination, and nothing will be.
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

// last finds the receive that an ERROR or CANCELLED is for.
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

// Imm is the event that a WRITE_WITH_IMM of the peer has completed a receive: the
// last write of a content on a rail, all of which on this rail has arrived.
func (c *Channel) Imm(now time.Time, rail int, imm uint32) {
	if c.state == Gone || rail < 0 || rail >= c.cfg.Rails || !c.countReceived(now, rail) {
		return
	}
	i := wire.Imm(imm)
	r := c.slots.find(i)
	if r == none {
		c.fault("a write into %v, which is not open: its bytes have landed in memory of somebody else", i)
		return
	}
	x := c.receives.at(r)
	if !c.expects(x, rail) {
		c.fault("a last write of receive %016x on rail %d, which had its last or carries none of it", x.id, rail)
		return
	}
	c.railDone(now, r, rail, true)
}

// arrived notes that the last of a receive has come on a rail; or, not each, on all.
func (c *Channel) railDone(now time.Time, r ref, rail int, each bool) {
	x := c.receives.at(r)
	x.railsDone |= 1 << rail
	if each && !c.complete(x) {
		if x.list == listRequested {
			c.setList(now, r, listRequested) // it moves
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

// queryAnswer is WAITING or UNKNOWN.
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
			c.fault("%v for receive %016x, which was not asked yet", kind, id)
			return
		case kind == wire.KindUnknown && !x.ended:
			c.fault("it knows nothing of receive %016x, which was asked and not answered", id)
			return
		case x.list == listQueried:
			c.setList(now, r, listRequested)
		}
	}
}
