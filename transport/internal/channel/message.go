package channel

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport/internal/wire"
)

// Message is the event that a message of the peer has completed a receive of a
// rail. b is what it holds; the channel refers to it until the actions of the next
// Actions have been carried out, and not later.
func (c *Channel) Message(now time.Time, rail int, b []byte) {
	if c.state == Gone || rail < 0 || rail >= c.cfg.Rails || !c.countReceived(now, rail) {
		return
	}
	kind, err := wire.KindOf(b)
	if err != nil {
		c.fault("%w", err)
		return
	}
	if c.helloReceived == (kind == wire.KindHello) {
		if c.helloReceived {
			c.fault("HELLO twice")
		} else {
			c.fault("%v before HELLO", kind)
		}
		return
	}
	if rail != 0 && kind != wire.KindError && kind != wire.KindCancelled {
		c.fault("%v on rail %d", kind, rail)
		return
	}
	if err := c.dispatch(now, rail, kind, b); err != nil {
		c.fault("%w", err)
	}
}

// dispatch parses a message and takes it in. Each kind's body stands here so that
// none escapes to the heap.
func (c *Channel) dispatch(now time.Time, rail int, kind wire.Kind, b []byte) error {
	switch kind {
	case wire.KindHello:
		var m wire.Hello
		if err := m.Parse(b); err != nil {
			return err
		}
		if c.takeHeader(rail, &m.Header) {
			c.onHello(&m)
		}
	case wire.KindCredit:
		var m wire.Credit
		if err := m.Parse(b); err != nil {
			return err
		}
		c.takeHeader(rail, &m.Header)
	case wire.KindBye:
		var m wire.Bye
		if err := m.Parse(b); err != nil {
			return err
		}
		if c.takeHeader(rail, &m.Header) {
			c.close(fmt.Errorf("%s, channel generation %d: it closed the channel: %s", c.cfg.Peer, c.cfg.Generation, m.Reason))
		}
	case wire.KindRequest:
		var m wire.Request
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if !c.takeCounts(rail, &m.Header) {
			return nil
		}
		if c.state < Leaving {
			c.onRequest(&m) // before what rides on it, which nobody waits for
		}
		c.onAcks(&m.Header)
	case wire.KindMeta:
		var m wire.Meta
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) {
			c.onMeta(now, &m)
		}
	case wire.KindReRequest:
		var m wire.ReRequest
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) && c.state < Leaving {
			c.onReRequest(&m)
		}
	case wire.KindEager:
		var m wire.Eager
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) {
			c.onEager(&m)
		}
	case wire.KindError:
		var m wire.Error
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) {
			c.onError(now, rail, &m)
		}
	case wire.KindCancelled:
		var m wire.Cancelled
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) {
			c.onCancelled(now, rail, &m)
		}
	default:
		return c.dispatchList(now, rail, kind, b)
	}
	return nil
}

// dispatchList does it for the kinds that are lists of ids.
func (c *Channel) dispatchList(now time.Time, rail int, kind wire.Kind, b []byte) error {
	var ids wire.IDs
	var h wire.Header
	switch kind {
	case wire.KindCancel:
		var m wire.Cancel
		if err := m.Parse(b); err != nil {
			return err
		}
		ids, h = m.IDs, m.Header
	case wire.KindAck:
		var m wire.Ack
		if err := m.Parse(b); err != nil {
			return err
		}
		ids, h = m.IDs, m.Header
	case wire.KindQuery:
		var m wire.Query
		if err := m.Parse(b); err != nil {
			return err
		}
		ids, h = m.IDs, m.Header
	case wire.KindWaiting:
		var m wire.Waiting
		if err := m.Parse(b); err != nil {
			return err
		}
		ids, h = m.IDs, m.Header
	case wire.KindUnknown:
		var m wire.Unknown
		if err := m.Parse(b); err != nil {
			return err
		}
		ids, h = m.IDs, m.Header
	}
	c.noteWantCounts(now, &h)
	if !c.takeHeader(rail, &h) {
		return nil
	}
	switch kind {
	case wire.KindCancel:
		c.act(Action{Kind: ActCancelled, IDs: ids})
		for i := range ids.Count() {
			c.onCancel(ids.At(i))
		}
	case wire.KindAck:
		c.act(Action{Kind: ActAcked, IDs: ids})
	case wire.KindQuery:
		c.onQuery(ids)
	case wire.KindWaiting, wire.KindUnknown:
		c.onQueryReply(now, kind, ids)
	}
	return nil
}

// head takes in what every message carries. false after a fault.
func (c *Channel) takeHeader(rail int, h *wire.Header) bool {
	if !c.takeCounts(rail, h) {
		return false
	}
	c.onAcks(h)
	return true
}

// finishedBy takes in which answers the peer has.
func (c *Channel) onAcks(h *wire.Header) {
	if len(h.Acks) > 0 {
		c.act(Action{Kind: ActAcked, IDs: h.Acks})
	}
}

// counted takes in the counts of a message. false after a fault.
func (c *Channel) takeCounts(rail int, h *wire.Header) bool {
	if rail != 0 {
		if h.Taken.N == 0 && len(h.Acks) == 0 {
			return true
		}
		c.fault("a message on rail %d carries counts or finished ids", rail)
		return false
	}
	before := c.state
	c.confirm(h.Taken)
	return c.state == before
}

// tell notes that the peer wants to know soon that this was taken.
func (c *Channel) noteWantCounts(now time.Time, h *wire.Header) {
	if h.WantCounts && c.countsBy.IsZero() {
		c.countsBy = now.Add(countsDelay)
	}
}

func (c *Channel) onHello(m *wire.Hello) {
	if m.Generation != c.cfg.Generation || m.From != c.cfg.PeerIncarnation || m.To != c.cfg.OwnIncarnation {
		c.fault("HELLO for generation %d from %016x to %016x, want generation %d from %016x to %016x",
			m.Generation, m.From, m.To, c.cfg.Generation, c.cfg.PeerIncarnation, c.cfg.OwnIncarnation)
		return
	}
	c.helloReceived = true
	if c.state == Opening {
		c.state = Up
	}
	c.act(Action{Kind: ActUp})
}

// errorOf is the error that a message carries.
func errorOf(m *wire.Error) *status.Error {
	e := status.New(m.Code, string(m.Text))
	for rest := m.Payloads; len(rest) > 0; {
		key, value, next, ok := rest.Next()
		if !ok {
			break // Parse has seen to it
		}
		e = e.WithPayload(string(key), append([]byte(nil), value...))
		rest = next
	}
	return e
}

// railsOf names the first rail of a set of bits.
func railsOf(done uint8) string { return fmt.Sprint(bits.TrailingZeros8(done)) }

func errByeSent(reason []byte) error { return fmt.Errorf("closed here: %s", reason) }
