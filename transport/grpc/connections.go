package grpctransport

import (
	"context"
	"sync"

	"google.golang.org/grpc/stats"

	"github.com/tryst-rdma/tryst/transport"
)

// connections gives each connection of a server a place for its askers. It is a
// stats handler because only that learns when a connection has ended.
type connections struct{}

type connectionKey struct{}

// connection knows the askers whose requests came over it.
type connection struct {
	mu    sync.Mutex        // guards what follows
	downs map[uint64]func() // by incarnation: to say that the connection has ended
	ended bool
}

// TagConn implements stats.Handler.
func (connections) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context {
	return context.WithValue(ctx, connectionKey{}, &connection{downs: make(map[uint64]func())})
}

// HandleConn implements stats.Handler.
func (connections) HandleConn(ctx context.Context, s stats.ConnStats) {
	if _, ok := s.(*stats.ConnEnd); ok {
		connectionOf(ctx).end()
	}
}

// TagRPC implements stats.Handler.
func (connections) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC implements stats.Handler.
func (connections) HandleRPC(context.Context, stats.RPCStats) {}

// connectionOf returns the connection that a call came over; nil when the
// server was made without ServerOptions.
func connectionOf(ctx context.Context) *connection {
	c, _ := ctx.Value(connectionKey{}).(*connection)
	return c
}

// carries says that a request of a came over the connection.
func (c *connection) carries(k *transport.Kept, a transport.Asker) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended || c.downs[a.Incarnation] != nil {
		return
	}
	c.downs[a.Incarnation] = k.WireUp(a)
}

func (c *connection) end() {
	if c == nil {
		return
	}
	c.mu.Lock()
	downs := c.downs
	c.ended, c.downs = true, nil
	c.mu.Unlock()
	for _, down := range downs {
		down()
	}
}
