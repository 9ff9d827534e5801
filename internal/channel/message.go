package channel

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/tryst-rdma/tryst/internal/wire"
	"github.com/tryst-rdma/tryst/status"
)

// Message is the event that a message of the peer has consumed a posted receive of a rail.
// The channel refers to its bytes b until the shell has carried out the actions that the
// next call of Actions returns.
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

// dispatch parses and processes a message. The functions that it calls declare a variable for
// each kind, so that no message escapes to the heap.
func (c *Channel) dispatch(now time.Time, rail int, kind wire.Kind, b []byte) error {
	switch kind {
	case wire.KindHello, wire.KindCredit, wire.KindBye:
		return c.dispatchControl(rail, kind, b)
	case wire.KindRequest, wire.KindReRequest:
		return c.dispatchRequest(now, rail, kind, b)
	case wire.KindMeta, wire.KindEager, wire.KindError, wire.KindCancelled:
		return c.dispatchResponse(now, rail, kind, b)
	}
	return c.dispatchList(now, rail, kind, b)
}

// dispatchControl is dispatch for the kinds that concern the channel alone.
func (c *Channel) dispatchControl(rail int, kind wire.Kind, b []byte) error {
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
			c.close(status.Errorf(status.Unavailable, "%w", &status.Said{Peer: c.cfg.Peer, Text: string(m.Reason)}))
		}
	}
	return nil
}

// dispatchRequest is dispatch for the kinds that a requester sends for one receive.
func (c *Channel) dispatchRequest(now time.Time, rail int, kind wire.Kind, b []byte) error {
	switch kind {
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
			c.onRequest(&m) // before its acks, which are not urgent
		}
		c.onAcks(&m.Header)
	case wire.KindReRequest:
		var m wire.ReRequest
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) && c.state < Leaving {
			c.onReRequest(&m)
		}
	}
	return nil
}

// dispatchResponse is dispatch for the kinds that a responder sends.
func (c *Channel) dispatchResponse(now time.Time, rail int, kind wire.Kind, b []byte) error {
	switch kind {
	case wire.KindMeta:
		var m wire.Meta
		if err := m.Parse(b); err != nil {
			return err
		}
		c.noteWantCounts(now, &m.Header)
		if c.takeHeader(rail, &m.Header) {
			c.onMeta(now, &m)
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
	}
	return nil
}

// dispatchList is dispatch for the kinds that are lists of ids.
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

// takeHeader processes the counts and acks of a message. It returns false after a fault.
func (c *Channel) takeHeader(rail int, h *wire.Header) bool {
	if !c.takeCounts(rail, h) {
		return false
	}
	c.onAcks(h)
	return true
}

// onAcks passes on the acks of a header.
func (c *Channel) onAcks(h *wire.Header) {
	if len(h.Acks) > 0 {
		c.act(Action{Kind: ActAcked, IDs: h.Acks})
	}
}

// takeCounts processes the counts of a message. It returns false after a fault.
func (c *Channel) takeCounts(rail int, h *wire.Header) bool {
	if rail != 0 {
		if h.Taken.N == 0 && len(h.Acks) == 0 {
			return true
		}
		c.fault("a message on rail %d carries counts or acknowledged ids", rail)
		return false
	}
	before := c.state
	c.confirm(h.Taken)
	return c.state == before
}

// noteWantCounts notes that the peer has set WANT_COUNTS.
func (c *Channel) noteWantCounts(now time.Time, h *wire.Header) {
	if h.WantCounts && c.countsBy.IsZero() {
		c.countsBy = now.Add(CountsDelay)
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

// errorOf returns the error in a message.
func errorOf(m *wire.Error) *status.Error {
	e := status.New(m.Code, string(m.Text))
	for rest := m.Payloads; len(rest) > 0; {
		key, value, next, ok := rest.Next()
		if !ok {
			break // cannot happen: Parse checks the payloads
		}
		e = e.WithPayload(string(key), append([]byte(nil), value...))
		rest = next
	}
	return e
}

// railsOf returns the number of the first rail in a set of bits.
func railsOf(done uint8) string { return fmt.Sprint(bits.TrailingZeros8(done)) }

// ErrClosedHere is wrapped by the error of a channel that this side has closed with BYE. The text
// has the reason.
var ErrClosedHere = errors.New("closed here")

func errByeSent(reason []byte) error { return fmt.Errorf("%w: %s", ErrClosedHere, reason) }
