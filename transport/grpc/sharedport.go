package grpctransport

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
)

// VerbsProtocol is the TLS protocol (ALPN, RFC 7301) of the connections of queue pairs. A
// connection without TLS begins with verbsMagic instead (PROTOCOL.md, "Queue pairs over TCP").
const (
	VerbsProtocol = "tryst-verbs"
	verbsMagic    = "TRYSTQP1"
)

// Acceptor takes connections of queue pairs over TCP.
//
// Accept owns the connection and closes it. Reads begin with the client's first byte, after the
// handshake of TLS. The connection has a deadline, before which its first frame must come; until
// Accept or what it starts clears the read deadline, the connection counts as one without a first
// frame. Under TLS the connection has the methods ConnectionState, which has the verified
// certificate of the client, and NetConn. Without TLS it has those of a *net.TCPConn, so that
// net.Buffers writes to it with one system call, and Socket, which returns it.
type Acceptor interface{ Accept(conn net.Conn) }

// SharedPort makes a port that gRPC serves also take the connections of queue pairs:
//
//	Listener ─► gRPC ─► TransportCredentials: TLS, first bytes ─► HTTP/2
//	                                                           └► Acceptor, ErrConnDispatched
//
// It is safe for concurrent use. End closes the connections that the Acceptor has.
type SharedPort struct {
	acceptor Acceptor

	mu      sync.Mutex // guards what follows
	conns   map[*handed]struct{}
	waiting map[*handed]struct{} // those of conns without a first frame
	next    uint64               // order of the next connection
	ended   bool
}

// NewSharedPort returns a port that hands connections to an Acceptor.
func NewSharedPort(a Acceptor) *SharedPort {
	return &SharedPort{acceptor: a, conns: make(map[*handed]struct{}), waiting: make(map[*handed]struct{})}
}

// Listener returns a listener for gRPC's server. Without it no connection is handed over.
func (p *SharedPort) Listener(l net.Listener) net.Listener { return sharedListener{l} }

// End closes the connections that the Acceptor has, and those to come.
func (p *SharedPort) End() {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.ended = true
	conns := p.conns
	p.conns, p.waiting = nil, nil
	p.mu.Unlock()
	for h := range conns {
		_ = h.conn.Close()
	}
}

// Connections returns how many connections the Acceptor has, and how many of them have not sent
// their first frame.
func (p *SharedPort) Connections() (all, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns), len(p.waiting)
}

// sharedListener makes gRPC's deadlines stoppable.
type sharedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l sharedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: conn}, nil
}

// gatedConn is the connection as gRPC has it. After the connection is handed over gRPC sets its
// deadline once more, which must not reach the new owner.
type gatedConn struct {
	net.Conn
	handed atomic.Bool
}

// SetDeadline implements net.Conn.
func (c *gatedConn) SetDeadline(t time.Time) error {
	if c.handed.Load() {
		return nil
	}
	return c.Conn.SetDeadline(t)
}

// NetConn returns the connection below.
func (c *gatedConn) NetConn() net.Conn { return c.Conn }

// bare returns the connection that the listener has accepted.
func bare(raw net.Conn) net.Conn {
	if c, ok := raw.(*gatedConn); ok {
		return c.Conn
	}
	return raw
}

// hand gives a connection to the Acceptor. It returns credentials.ErrConnDispatched, by which
// gRPC forgets the connection, or the reason for a refusal. raw is the connection of gRPC, conn the
// one to read after the bytes in first.
func (p *SharedPort) hand(raw, conn net.Conn, first []byte) error {
	gate, ok := raw.(*gatedConn)
	if p == nil || !ok {
		return errors.New("this server takes no queue pairs over TCP: its setting provider leaves out tcp")
	}
	if c, ok := conn.(*tls.Conn); ok && c.ConnectionState().Version < tls.VersionTLS13 {
		return fmt.Errorf("queue pairs over TCP need TLS 1.3, and the client has %s", tls.VersionName(c.ConnectionState().Version))
	}
	gate.handed.Store(true)
	if err := conn.SetDeadline(time.Now().Add(firstFrameMax)); err != nil {
		return err // the client has gone
	}
	h := &handed{port: p, conn: conn, first: first}
	if !p.add(h) {
		return errors.New("the server stops")
	}
	p.acceptor.Accept(h.wrap())
	return credentials.ErrConnDispatched
}

// add adds a connection without a first frame. It returns false after End. At the limit the oldest
// one ends of the address that has most: a peer sends its first frame at once, and waits for the
// answer while the other side is not ready; other clients may never do.
func (p *SharedPort) add(h *handed) bool {
	p.mu.Lock()
	if p.ended {
		p.mu.Unlock()
		return false
	}
	p.next++
	h.order, h.from = p.next, sourceAddress(h.conn)
	var oldest *handed
	if len(p.waiting) >= maxWithoutFrame {
		oldest = p.leastWantedLocked(h)
		delete(p.waiting, oldest)
		delete(p.conns, oldest)
	}
	p.conns[h], p.waiting[h] = struct{}{}, struct{}{}
	p.mu.Unlock()
	if oldest != nil {
		_ = oldest.conn.Close()
	}
	return true
}

// leastWantedLocked returns the connection without a first frame that ends for the next one.
func (p *SharedPort) leastWantedLocked(next *handed) (oldest *handed) {
	of, most := map[string]int{next.from: 1}, 0
	for w := range p.waiting {
		of[w.from]++
	}
	for w := range p.waiting {
		if n := of[w.from]; n > most || n == most && w.order < oldest.order {
			most, oldest = n, w
		}
	}
	return oldest
}

// sourceAddress is the address of the host that a connection comes from.
func sourceAddress(conn net.Conn) string {
	a := conn.RemoteAddr()
	if a == nil {
		return ""
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}

// handed is a connection that the Acceptor has.
type handed struct {
	port  *SharedPort
	conn  net.Conn
	order uint64
	from  string // sourceAddress
	first []byte // what gRPC's credentials have read
}

// wrap returns the connection for the Acceptor, with the methods of the connection below.
func (h *handed) wrap() net.Conn {
	switch conn := h.conn.(type) {
	case *net.TCPConn:
		return &handedTCP{conn, h}
	case *tls.Conn:
		return &handedTLS{conn, h}
	default:
		return &handedConn{conn, h}
	}
}

func (h *handed) read(b []byte) (int, error) {
	if len(h.first) == 0 {
		return h.conn.Read(b)
	}
	n := copy(b, h.first)
	if h.first = h.first[n:]; len(h.first) == 0 {
		h.first = nil
	}
	return n, nil
}

func (h *handed) close() error {
	h.port.mu.Lock()
	delete(h.port.conns, h)
	delete(h.port.waiting, h)
	h.port.mu.Unlock()
	return h.conn.Close()
}

// deadline notes that the read deadline is set to t.
func (h *handed) deadline(t time.Time) {
	if !t.IsZero() {
		return
	}
	h.port.mu.Lock()
	delete(h.port.waiting, h)
	h.port.mu.Unlock()
}

// handedTCP is a handed connection without TLS.
type handedTCP struct {
	*net.TCPConn
	h *handed
}

// Read implements net.Conn.
func (c *handedTCP) Read(b []byte) (int, error) { return c.h.read(b) }

// Socket returns the socket, for direct reads and writes; nil while the next bytes are not those of
// the socket, since they were read already.
func (c *handedTCP) Socket() *net.TCPConn {
	if len(c.h.first) > 0 {
		return nil
	}
	return c.TCPConn
}

// WriteTo implements io.WriterTo. That of the socket leaves out the bytes that were read already.
func (c *handedTCP) WriteTo(w io.Writer) (int64, error) {
	return io.Copy(w, struct{ io.Reader }{c})
}

// Close implements net.Conn.
func (c *handedTCP) Close() error { return c.h.close() }

// SetDeadline implements net.Conn.
func (c *handedTCP) SetDeadline(t time.Time) error {
	c.h.deadline(t)
	return c.TCPConn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *handedTCP) SetReadDeadline(t time.Time) error {
	c.h.deadline(t)
	return c.TCPConn.SetReadDeadline(t)
}

// handedTLS is a handed connection with TLS.
type handedTLS struct {
	*tls.Conn
	h *handed
}

// Close implements net.Conn.
func (c *handedTLS) Close() error { return c.h.close() }

// SetDeadline implements net.Conn.
func (c *handedTLS) SetDeadline(t time.Time) error {
	c.h.deadline(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *handedTLS) SetReadDeadline(t time.Time) error {
	c.h.deadline(t)
	return c.Conn.SetReadDeadline(t)
}

// NetConn returns the connection below TLS.
func (c *handedTLS) NetConn() net.Conn {
	if held, ok := c.Conn.NetConn().(*heldConn); ok {
		return held.Conn
	}
	return c.Conn.NetConn()
}

// handedConn is a handed connection of another network.
type handedConn struct {
	net.Conn
	h *handed
}

// Read implements net.Conn.
func (c *handedConn) Read(b []byte) (int, error) { return c.h.read(b) }

// Close implements net.Conn.
func (c *handedConn) Close() error { return c.h.close() }

// SetDeadline implements net.Conn.
func (c *handedConn) SetDeadline(t time.Time) error {
	c.h.deadline(t)
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements net.Conn.
func (c *handedConn) SetReadDeadline(t time.Time) error {
	c.h.deadline(t)
	return c.Conn.SetReadDeadline(t)
}
