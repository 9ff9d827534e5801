package transporttest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is the Faults of transports over TCP. It listens on a local port and forwards its
// connections to a target. It has one goroutine that accepts, and two for each connection;
// Close waits for them.
type Proxy struct {
	*valve
	work sync.WaitGroup

	mu      sync.Mutex // guards the fields below
	target  string     // "" for none
	socket  map[net.Conn]struct{}
	begins  map[net.Conn][]byte // the first bytes of each requester
	refused string              // connections that begin so are reset; "" for none
	closed  bool

	listeners []net.Listener
}

// maxBegin is how many first bytes of a connection a proxy keeps.
const maxBegin = 16

// proxyBuffer is the size in bytes of a connection's buffer: large enough to make few system
// calls, small enough for an even flow when throttled.
const proxyBuffer = 64 << 10

// NewProxy returns a proxy without a target. It is closed when t ends.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	p := &Proxy{valve: newValve(), socket: make(map[net.Conn]struct{}), begins: make(map[net.Conn][]byte)}
	p.Listen(t)
	t.Cleanup(p.Close)
	return p
}

// Listen lets the proxy listen on one more local port, and returns its address. Close closes it.
func (p *Proxy) Listen(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	p.listeners = append(p.listeners, l)
	p.mu.Unlock()
	p.work.Go(func() { p.accept(l) })
	return l.Addr().String()
}

// Addr returns the first address on which it listens, as host:port.
func (p *Proxy) Addr() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.listeners[0].Addr().String()
}

// SetTarget sets the target of new connections. With "" they are reset at once, as if nothing
// listened there.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Target returns the target of new connections; "" for none.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Refuse resets the connections whose requester begins with these bytes, at most 16: those that are
// open and those that come until the next call. "" refuses none. So a port with two protocols loses
// one of them.
func (p *Proxy) Refuse(begin string) {
	p.mu.Lock()
	p.refused = begin
	var all []net.Conn
	for c := range p.begins {
		if p.refusesLocked(c) {
			all = append(all, c)
		}
	}
	p.mu.Unlock()
	for _, c := range all {
		reset(c)
	}
}

// refusesLocked reports whether a connection must be reset for its first bytes.
func (p *Proxy) refusesLocked(c net.Conn) bool {
	return p.refused != "" && bytes.HasPrefix(p.begins[c], []byte(p.refused))
}

// read notes the first bytes of a requester. It reports whether they may pass.
func (p *Proxy) read(requester net.Conn, b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if have := p.begins[requester]; len(have) < maxBegin {
		p.begins[requester] = append(have, b[:min(len(b), maxBegin-len(have))]...)
	}
	return !p.refusesLocked(requester)
}

// Carried returns the number of bytes forwarded from the target to its clients.
func (p *Proxy) Carried() int64 {
	p.valve.mu.Lock()
	defer p.valve.mu.Unlock()
	return p.carried
}

// Close closes all connections and waits for its goroutines. It may be called twice.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.socket {
		reset(c)
	}
	for _, l := range p.listeners {
		l.Close()
	}
	p.mu.Unlock()
	p.Throttle(0)
	p.Release()
	p.CutAfter(0)
	p.work.Wait()
}

func (p *Proxy) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

// own registers a socket, which Close then closes. It returns false after Close.
func (p *Proxy) own(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.socket[c] = struct{}{}
	return true
}

func (p *Proxy) disown(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.socket, c)
	delete(p.begins, c)
}

// serve forwards one connection until both directions have ended.
func (p *Proxy) serve(requester net.Conn) {
	defer requester.Close()
	if !p.own(requester) {
		return
	}
	defer p.disown(requester)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if target == "" {
		reset(requester)
		return
	}
	task, err := net.Dial("tcp", target)
	if err != nil {
		reset(requester)
		return
	}
	defer task.Close()
	if !p.own(task) {
		return
	}
	defer p.disown(task)
	l := p.open(func() {
		reset(requester)
		reset(task)
	})
	defer l.close()
	if p.Target() != target { // a cut since then may have missed this connection
		reset(requester)
		reset(task)
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		carry(task, requester, func(b []byte) (int, bool) {
			if !p.read(requester, b) {
				reset(requester)
				reset(task)
				return 0, false
			}
			return len(b), l.toTask()
		})
	})
	carry(requester, task, func(b []byte) (int, bool) { return l.fromTask(len(b)) })
	both.Wait()
}

// carry copies src to dst, as many of the bytes that it has read at a time as pass permits. At the end of src it
// closes dst for writing; after an error it resets both connections.
func carry(dst, src net.Conn, pass func(b []byte) (int, bool)) {
	buf := make([]byte, proxyBuffer)
	for {
		n, err := src.Read(buf)
		for sent := 0; sent < n; {
			k, ok := pass(buf[sent:n])
			if !ok {
				return
			}
			if _, err := dst.Write(buf[sent : sent+k]); err != nil {
				reset(src)
				return
			}
			sent += k
		}
		switch {
		case errors.Is(err, io.EOF):
			if c, ok := dst.(*net.TCPConn); ok {
				_ = c.CloseWrite() // may be closed already
			}
			return
		case err != nil:
			reset(dst)
			return
		}
	}
}

// reset breaks a connection: both ends get an error instead of EOF.
func reset(c net.Conn) {
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // fails only when it is closed already
	}
	c.Close()
}
