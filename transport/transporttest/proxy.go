package transporttest

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// Proxy is a Link for transports over TCP: a port of this machine whose
// connections go on to a target. It owns a goroutine that accepts and two for
// each connection; Close waits for them.
type Proxy struct {
	*valve
	listener net.Listener
	work     sync.WaitGroup

	mu     sync.Mutex // guards what follows
	target string     // "": nobody is there
	socket map[net.Conn]struct{}
	closed bool
}

// proxyBuffer is what a connection carries at a time: large enough that the
// system calls cost little, small enough that a throttled flow is even.
const proxyBuffer = 64 << 10

// NewProxy returns a proxy to nobody that is closed when t ends.
func NewProxy(t testing.TB) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{valve: newValve(), listener: l, socket: make(map[net.Conn]struct{})}
	p.work.Go(p.accept)
	t.Cleanup(p.Close)
	return p
}

// Addr is where it listens, as host:port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget says where connections made from now on go to. With "" they are
// closed at once, as of a host where nobody listens.
func (p *Proxy) SetTarget(address string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = address
}

// Target returns where new connections go to; "" for nowhere.
func (p *Proxy) Target() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.target
}

// Carried returns how many bytes went from the target to its clients.
func (p *Proxy) Carried() int64 {
	p.valve.mu.Lock()
	defer p.valve.mu.Unlock()
	return p.carried
}

// Close closes all connections and waits for its goroutines. Closing twice is
// harmless.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.closed = true
	for c := range p.socket {
		reset(c)
	}
	p.mu.Unlock()
	p.listener.Close()
	p.Throttle(0)
	p.Release()
	p.CutAfter(0)
	p.work.Wait()
}

func (p *Proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

// own enters a socket, so that Close closes it; false after Close.
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
}

// serve carries one connection until both directions have ended.
func (p *Proxy) serve(asker net.Conn) {
	defer asker.Close()
	if !p.own(asker) {
		return
	}
	defer p.disown(asker)
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	if target == "" {
		reset(asker)
		return
	}
	task, err := net.Dial("tcp", target)
	if err != nil {
		reset(asker)
		return
	}
	defer task.Close()
	if !p.own(task) {
		return
	}
	defer p.disown(task)
	l := p.open(func() {
		reset(asker)
		reset(task)
	})
	defer l.close()
	if p.Target() != target { // a cut that followed may have come before this one could be cut
		reset(asker)
		reset(task)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { carry(task, asker, func(n int) (int, bool) { return n, l.toTask() }) })
	carry(asker, task, l.fromTask)
	both.Wait()
}

// carry copies src to dst, as much at a time as pass allows. At its end it ends
// the other side's input; after a fault it breaks both connections.
func carry(dst, src net.Conn, pass func(n int) (int, bool)) {
	buf := make([]byte, proxyBuffer)
	for {
		n, err := src.Read(buf)
		for sent := 0; sent < n; {
			k, ok := pass(n - sent)
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
				_ = c.CloseWrite() // it may be closed already
			}
			return
		case err != nil:
			reset(dst)
			return
		}
	}
}

// reset breaks a connection: both ends see an error, not an end.
func reset(c net.Conn) {
	if c, ok := c.(*net.TCPConn); ok {
		_ = c.SetLinger(0) // fails only when it is closed already
	}
	c.Close()
}
