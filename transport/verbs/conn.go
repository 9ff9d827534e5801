package verbstransport

import (
	"context"
	"time"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// conn is the transport.Conn to a peer: the channel while one is up, and gRPC otherwise.
// With Options.Require a receive is never requested over gRPC. Hello, acknowledgements and
// cancels still are.
type conn struct {
	peer *peer
	grpc transport.Conn
}

var _ transport.Conn = (*conn)(nil)

// Hello implements transport.Conn. While a channel is up the peer is known without gRPC.
func (c *conn) Hello(ctx context.Context) (transport.Peer, error) {
	if known, ok := c.peer.known(); ok {
		return known, nil
	}
	before := c.peer.evidence()
	c.peer.keepConnected()
	c.peer.awaitCarrier(ctx)
	if known, ok := c.peer.known(); ok {
		return known, nil
	}
	known, err := c.grpcHello(ctx)
	if err != nil {
		return known, err
	}
	if !c.peer.transport.opts.Require {
		return c.first(ctx, known), nil
	}
	c.peer.reachedNow()
	again := time.NewTicker(c.peer.transport.opts.Backoff)
	defer again.Stop()
	for {
		_, _, changed := c.peer.current()
		if known, ok := c.peer.known(); ok {
			return known, nil
		}
		why := c.peer.never()
		switch {
		case why == nil:
		case c.peer.hasLeft():
			return transport.Peer{}, why
		case c.peer.evidence() != before:
			return transport.Peer{}, status.Errorf(status.FailedPrecondition, "%s; the setting fallback is none, which allows no other connection", status.From(why).Message())
		}
		select {
		case <-changed:
		case <-again.C:
			c.peer.connectNow() // an attempt may have failed meanwhile and have set a long back-off
		case <-ctx.Done():
			k := c.peer.status()
			return transport.Peer{}, status.Errorf(status.Unavailable,
				"there is no verbs channel to %v (%v), and the setting fallback is none, which allows no other connection", c.peer.task, whyNot(k.Reason))
		}
	}
}

// first waits for the first channel to a peer that has answered over gRPC as known.
func (c *conn) first(ctx context.Context, known transport.Peer) transport.Peer {
	if !known.Tryst {
		return known
	}
	c.peer.expectFirst()
	c.peer.reachedNow()
	c.peer.awaitCarrier(ctx)
	if up, ok := c.peer.known(); ok {
		return up
	}
	return known
}

// grpcHello sends Hello over gRPC. It cancels the call when a channel comes up, which
// identifies the peer as well.
func (c *conn) grpcHello(parent context.Context) (transport.Peer, error) {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	c.peer.transport.work.Go(func() {
		for {
			l, _, _, changed := c.peer.carrier()
			if l != nil {
				cancel()
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	})
	answer, err := c.grpc.Hello(ctx)
	if err == nil {
		return answer, nil
	}
	if known, ok := c.peer.known(); ok {
		return known, nil
	}
	if ctx.Err() != nil && parent.Err() == nil {
		return answer, &transport.LostError{Err: status.Errorf(status.Unavailable, "a verbs channel to %v came up, but cannot be used now", c.peer.task)}
	}
	return answer, err
}

// Begin implements transport.Conn.
func (c *conn) Begin(t *transport.Receive) transport.Attempt {
	p := c.peer
	l, left, until, _ := p.carrier()
	t.Left = left.with(t.Peer)
	switch {
	case l != nil && !t.Fallback && !t.Plain && l.requester.Incarnation == t.Peer:
		p.transport.active()
		p.used(t)
		return l.begin(t)
	case p.transport.opts.Require:
		return failedAttempt{&transport.LostError{Err: status.Errorf(status.Unavailable, "the verbs channel to %v is down", p.task), Unsent: true}}
	case !until.IsZero() && !t.Fallback && !t.Plain:
		return failedAttempt{&transport.LostError{Err: status.Errorf(status.Unavailable, "the channel to %v changes to another device", p.task), Unsent: true}}
	case !t.Fallback:
		p.counters.without.Add(1)
		p.used(t)
	}
	return c.grpc.Begin(t)
}

// Ack implements transport.Conn.
func (c *conn) Ack(ctx context.Context, ids []uint64) error {
	if l, _, _ := c.peer.current(); l != nil {
		return l.sendBatch(ctx, ids, false)
	}
	return c.grpc.Ack(ctx, ids)
}

// Cancel implements transport.Conn.
func (c *conn) Cancel(ctx context.Context, ids []uint64) error {
	if l, _, _ := c.peer.current(); l != nil {
		return l.sendBatch(ctx, ids, true)
	}
	return c.grpc.Cancel(ctx, ids)
}
