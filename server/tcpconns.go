package server

import (
	"net"
	"net/netip"
	"sync"
)

// tcpConns are the TCP connections of gRPC and of queue pairs, in both directions. These close them.
// They are forgotten when they are read next.
type tcpConns struct {
	mu           sync.Mutex // guards what follows
	conns        map[*net.TCPConn]*tcpConn
	next         uint64
	pruneAt      int    // number of connections at which closed ones are forgotten
	sent, resent uint64 // of connections that are forgotten
}

// firstPrune is the number of connections from which on closed ones are looked for.
const firstPrune = 64

// add adds a connection. Those that are not TCP are ignored.
func (t *tcpConns) add(c net.Conn) {
	conn, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.conns == nil {
		t.conns, t.pruneAt = make(map[*net.TCPConn]*tcpConn), firstPrune
	}
	if len(t.conns) >= t.pruneAt {
		t.readLocked()
		t.pruneAt = max(firstPrune, 2*len(t.conns))
	}
	t.next++
	at := &tcpConn{id: t.next}
	if a, ok := conn.RemoteAddr().(*net.TCPAddr); ok {
		p := a.AddrPort()
		at.peer = netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
	}
	t.conns[conn] = at
}

// read returns the counters of the open connections.
func (t *tcpConns) read() []tcpConn {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.readLocked()
	list := make([]tcpConn, 0, len(t.conns))
	for _, c := range t.conns {
		list = append(list, *c)
	}
	return list
}

// readLocked reads the counters, and forgets connections that are closed.
func (t *tcpConns) readLocked() {
	for conn, c := range t.conns {
		if !c.update(conn) {
			t.sent += c.sent
			t.resent += c.resent
			delete(t.conns, conn)
		}
	}
}

// totals returns the segments of all connections so far.
func (t *tcpConns) totals() (sent, resent uint64) {
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

// tracked is a listener that adds the connections that it accepts.
type tracked struct {
	net.Listener
	conns *tcpConns
}

// Accept implements net.Listener.
func (l tracked) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.conns.add(c)
	}
	return c, err
}
