package grpctransport

import (
	"context"
	"net"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// tracked gives each connection of a server a place for its askers. It hangs on
// the handshake because that is where a connection can be wrapped before gRPC
// has it; gRPC's own way to hear of a connection's end, a stats handler, costs a
// fifth of a small call.
type tracked struct {
	credentials.TransportCredentials
	quotas *quotas
}

// ServerHandshake implements credentials.TransportCredentials.
func (c tracked) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	quota, err := c.quotas.connect(raw.RemoteAddr())
	if err != nil {
		return raw, nil, err
	}
	conn, auth, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		quota.close()
		return conn, auth, err
	}
	tied := &connection{Conn: conn, quota: quota, downs: make(map[transport.Process]func())}
	tied.remote = address{conn.RemoteAddr(), conn.RemoteAddr().String(), tied}
	return tied, auth, nil
}

// Clone implements credentials.TransportCredentials.
func (c tracked) Clone() credentials.TransportCredentials {
	return tracked{c.TransportCredentials.Clone(), c.quotas}
}

// connection knows the askers whose requests came over it.
type connection struct {
	net.Conn
	remote address
	quota  *connQuota

	mu    sync.Mutex                   // guards what follows
	downs map[transport.Process]func() // each reports that the connection has ended; nil then
}

// address is a remote address that leads to its connection.
type address struct {
	net.Addr
	text string
	of   *connection
}

// String implements net.Addr; it is asked for in every call.
func (a *address) String() string { return a.text }

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return &c.remote }

// Close implements net.Conn.
func (c *connection) Close() error {
	err := c.Conn.Close()
	c.quota.close()
	c.mu.Lock()
	downs := c.downs
	c.downs = nil
	c.mu.Unlock()
	for _, down := range downs {
		down()
	}
	return err
}

// connectionOf returns the connection that ctx's call came over; nil where the server was made
// without ServerOptions.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.Addr.(*address); ok {
			return at.of
		}
	}
	return nil
}

// quotaOf returns what the connection may make this server hold; nil for anything.
func quotaOf(ctx context.Context) *connQuota {
	if c := connectionOf(ctx); c != nil {
		return c.quota
	}
	return nil
}

// carries reports whether an accepted request of a came over the connection.
func (c *connection) carries(a transport.Process) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.downs[a] != nil
}

// tie makes the connection one of a. It is refused when the connection has as many
// askers as it may that have something here.
func (c *connection) tie(k *transport.ResponseCache, a transport.Process) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.downs == nil || c.downs[a] != nil {
		return nil // it has ended, or is tied already
	}
	if len(c.downs) >= maxAskersOf {
		for other, down := range c.downs {
			if !k.Holds(other) {
				delete(c.downs, other)
				down()
			}
		}
	}
	if len(c.downs) >= maxAskersOf {
		return status.Errorf(status.ResourceExhausted, "%d processes ask here over one connection already; at most %d may", len(c.downs), maxAskersOf)
	}
	c.downs[a] = k.Connected(a)
	return nil
}
