package grpctransport

import (
	"context"
	"net"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// trackedCredentials wraps each connection of a server in a *connection. The handshake is
// where a connection can be wrapped before gRPC uses it. gRPC's stats handler also reports
// the end of a connection, but slows down every small call.
type trackedCredentials struct {
	credentials.TransportCredentials
	quotas     *quotas
	handshakes *Handshakes // nil when nobody ends them
	shared     *SharedPort // nil for a port of gRPC alone
}

// ServerHandshake implements credentials.TransportCredentials.
func (t trackedCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	quota, err := t.quotas.connect(raw.RemoteAddr())
	if err != nil {
		return raw, nil, err
	}
	if err := t.handshakes.begin(raw); err != nil {
		quota.close()
		return raw, nil, err
	}
	conn, auth, err := t.handshake(raw)
	if err != nil {
		t.handshakes.done(raw)
		quota.close()
		return conn, auth, err
	}
	c := &connection{Conn: conn, raw: raw, handshakes: t.handshakes, quota: quota, disconnects: make(map[transport.Process]binding)}
	c.remote = address{conn.RemoteAddr(), conn.RemoteAddr().String(), c}
	c.requests = newRequests(c)
	quota.of, quota.unread.conn, quota.unread.refuse = c, raw, c.requests.refuse
	return c, auth, nil
}

// Clone implements credentials.TransportCredentials.
func (t trackedCredentials) Clone() credentials.TransportCredentials {
	return trackedCredentials{t.TransportCredentials.Clone(), t.quotas, t.handshakes, t.shared}
}

// connection is a server's connection with the requesters that use it.
type connection struct {
	net.Conn
	remote     address
	quota      *connQuota
	raw        net.Conn // in handshakes until the handshake of HTTP/2 is complete
	handshakes *Handshakes
	writes     atomic.Uint32 // the first two calls of Write
	heard      atomic.Uint64 // calls of Read that brought something
	requests   *requests     // nil in tests without any
	callers    callers

	mu          sync.Mutex                    // guards what follows
	disconnects map[transport.Process]binding // nil after its end
	ends        map[any]func()                // see WhenDisconnected
}

// binding is a requester of a connection.
type binding struct {
	down    func() // reports the end of the connection to the cache
	cluster uint64 // the version of the cluster in which its name was checked
}

// address is the remote address of a connection. It refers to the connection, so that
// connectionOf finds it by the peer of a call.
type address struct {
	net.Addr
	text string
	conn *connection
}

// String implements net.Addr. Each call uses the text, so it is made once.
func (a *address) String() string { return a.text }

// RemoteAddr implements net.Conn.
func (c *connection) RemoteAddr() net.Addr { return &c.remote }

// Write implements net.Conn. gRPC first writes its SETTINGS. It writes again when those of the
// client have come, with which the handshake of HTTP/2 is complete.
func (c *connection) Write(b []byte) (int, error) {
	if c.writes.Load() < 2 && c.writes.Add(1) == 2 {
		c.handshakes.done(c.raw)
	}
	n, err := c.Conn.Write(b)
	c.requests.wrote(b[:n])
	return n, err
}

// Read implements net.Conn.
func (c *connection) Read(b []byte) (int, error) {
	n, err := c.requests.Read(b)
	if n > 0 {
		c.heard.Add(1)
	}
	return n, err
}

// Connection is a connection to a server made with ServerOptions.
type Connection struct{ c *connection }

// ConnectionOf returns the connection of ctx's call; false if the server was made without ServerOptions.
func ConnectionOf(ctx context.Context) (Connection, bool) {
	c := connectionOf(ctx)
	return Connection{c}, c != nil
}

// Heard returns a number that changes when something comes on the connection.
func (c Connection) Heard() uint64 { return c.c.heard.Load() }

// Collect lets the server find soon what gRPC has dropped of responses, on this connection or another one: until then
// it seems to be read.
func (c Connection) Collect() { c.c.quota.addr.server.loans.soon() }

// Cut closes the connection at once, for a client that does not answer: what gRPC has queued for it is
// released.
func (c Connection) Cut() { _ = c.c.raw.Close() }

// Close implements net.Conn.
func (c *connection) Close() error {
	err := c.Conn.Close()
	if c.requests != nil {
		c.requests.close()
	}
	c.quota.unread.close()
	c.handshakes.done(c.raw)
	c.quota.close()
	c.mu.Lock()
	disconnects, ends := c.disconnects, c.ends
	c.disconnects, c.ends = nil, nil
	c.mu.Unlock()
	for _, b := range disconnects {
		b.down()
	}
	for _, end := range ends {
		end()
	}
	return err
}

// WhenDisconnected calls end when the connection of ctx's call has ended, once for each key. It does
// nothing for a call that has no connection of a server with ServerOptions, and for a connection with
// too many keys: it has so many peers behind it that it is no sign of any of them.
func WhenDisconnected(ctx context.Context, key any, end func()) {
	c := connectionOf(ctx)
	if c == nil {
		return
	}
	c.mu.Lock()
	gone := c.disconnects == nil
	if !gone && (len(c.ends) < maxRequestersPerConn || c.ends[key] != nil) {
		if c.ends == nil {
			c.ends = make(map[any]func())
		}
		c.ends[key] = end
	}
	c.mu.Unlock()
	if gone {
		end()
	}
}

// connectionOf returns the connection of ctx's call; nil when the server was made without
// ServerOptions.
func connectionOf(ctx context.Context) *connection {
	if p, ok := peer.FromContext(ctx); ok {
		if at, ok := p.Addr.(*address); ok {
			return at.conn
		}
	}
	return nil
}

// quotaOf returns the quota of the connection of ctx's call; nil for no limits.
func quotaOf(ctx context.Context) *connQuota {
	if c := connectionOf(ctx); c != nil {
		return c.quota
	}
	return nil
}

// isBound reports whether bind has bound the connection to a in a version of the cluster.
func (c *connection) isBound(a transport.Process, cluster uint64) bool {
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	b, ok := c.disconnects[a]
	return ok && b.cluster == cluster
}

// bind binds the connection to requester a: the cache regards a as connected until the
// connection ends. At the limit of requesters it removes those without anything in the
// cache, and returns ResourceExhausted when there are none.
func (c *connection) bind(k transport.ResponseCache, a transport.Process, cluster uint64) error {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.disconnects == nil {
		return nil // the connection has ended
	}
	if b, ok := c.disconnects[a]; ok { // the cache may have dropped it meanwhile: its task left, and is back
		c.disconnects[a] = binding{k.Connected(a), cluster}
		b.down()
		return nil
	}
	if len(c.disconnects) >= maxRequestersPerConn {
		for other, b := range c.disconnects {
			if !k.Holds(other) {
				delete(c.disconnects, other)
				b.down()
			}
		}
	}
	if len(c.disconnects) >= maxRequestersPerConn {
		return status.Errorf(status.ResourceExhausted, "%d processes send requests over one connection already; the limit is %d", len(c.disconnects), maxRequestersPerConn)
	}
	c.disconnects[a] = binding{k.Connected(a), cluster}
	return nil
}
