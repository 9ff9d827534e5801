package loss

import (
	"net"
	"net/netip"
	"sync"
)

// Conns are the TCP connections of gRPC and of queue pairs, in both directions. These close them.
// They are forgotten when they are read next.
type Conns struct {
	mu           sync.Mutex // guards what follows
	conns        map[*net.TCPConn]*Conn
	next         uint64
	pruneAt      int    // number of connections at which closed ones are forgotten
	sent, resent uint64 // of connections that are forgotten
}

// firstPrune is the number of connections from which on closed ones are looked for.
const firstPrune = 64

// Add adds a connection. Those that are not TCP are ignored.
func (t *Conns) Add(c net.Conn) {
	conn, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns, t.pruneAt = make(map[*net.TCPConn]*Conn), firstPrune
	}
	if len(t.conns) >= t.pruneAt {
		t.readLocked()
		t.pruneAt = max(firstPrune, 2*len(t.conns))
	}
	t.next++
	at := &Conn{id: t.next}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		at.peer = netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	t.conns[conn] = at
}

// Read returns the counters of the open connections.
func (t *Conns) Read() []Conn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readLocked()
	list := make([]Conn, 0, len(t.conns))
	for _, c := range t.conns {
		list = append(list, *c)
	}
	return list
}

// readLocked reads the counters, and forgets connections that are closed.
func (t *Conns) readLocked() {
	for conn, c := range t.conns {
		if !c.update(conn) {
			t.sent += c.sent
			t.resent += c.resent
			delete(t.conns, conn)
		}
	}
}

// Totals returns the segments of all connections so far.
func (t *Conns) Totals() (sent, resent uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readLocked()
	sent, resent = t.sent, t.resent
	for _, c := range t.conns {
		sent += c.sent
		resent += c.resent
	}
	return sent, resent
}

// Listener returns a listener whose connections are added.
func (t *Conns) Listener(l net.Listener) net.Listener { return tracked{l, t} }

// tracked is a listener that adds the connections that it accepts.
type tracked struct {
	net.Listener
	conns *Conns
}

// Accept implements net.Listener.
func (l tracked) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns.Add(c)
	}
	return c, err
}
