package grpctransport

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// proxy forwards connections to a server and can cut them. It closes new connections at once
// while it has no backend.
type proxy struct {
	listener net.Listener
	down     atomic.Int64 // bytes from the server to the client

	mu       sync.Mutex // guards the fields below, but for work
	backend  string
	conns    map[net.Conn]struct{}
	cutAfter int64 // value of down at which all connections are cut, once; 0 for never
	cutNext  []int64
	cuts     int
	hold     int64         // value of down at which no more bytes are sent to the client; 0 for never
	held     chan struct{} // closed when it is reached
	released chan struct{}
	slow     time.Duration // delay of each new connection
	work     sync.WaitGroup
}

func newProxy(t testing.TB, backend string) *proxy {
	p := &proxy{listener: listen(t), backend: backend, conns: make(map[net.Conn]struct{})}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		p.listener.Close()
		p.setBackend("")
		p.work.Wait()
	})
	return p
}

func (p *proxy) address() string { return p.listener.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.serve(c) })
	}
}

func (p *proxy) serve(client net.Conn) {
	defer client.Close()
	p.mu.Lock()
	backend, slow := p.backend, p.slow
	p.mu.Unlock()
	if backend == "" {
		return
	}
	<-time.After(slow)
	server, err := net.Dial("tcp", backend)
	if err != nil {
		return
	}
	defer server.Close()
	p.mu.Lock()
	if p.backend != backend {
		p.mu.Unlock()
		return
	}
	p.conns[client], p.conns[server] = struct{}{}, struct{}{}
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.conns, client)
		delete(p.conns, server)
		p.mu.Unlock()
	}()
	var both sync.WaitGroup
	both.Go(func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	})
	defer both.Wait()
	defer client.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := server.Read(buf)
		if n > 0 {
			if p.count(int64(n)) {
				return
			}
			p.holdBack()
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// count counts n bytes to the client and cuts all connections at cutAfter.
func (p *proxy) count(n int64) (cut bool) {
	total := p.down.Add(n)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cutAfter == 0 || total < p.cutAfter {
		return false
	}
	p.cutAfter = 0
	if len(p.cutNext) > 0 {
		p.cutAfter, p.cutNext = total+p.cutNext[0], p.cutNext[1:]
	}
	p.cutLocked()
	return true
}

// holdBack waits for the release if the bytes of holdAt have passed.
func (p *proxy) holdBack() {
	p.mu.Lock()
	if p.hold == 0 || p.down.Load() < p.hold {
		p.mu.Unlock()
		return
	}
	released := p.released
	select {
	case <-p.held:
	default:
		close(p.held)
	}
	p.mu.Unlock()
	<-released
}

// holdAt holds back what the server sends after n more bytes. It returns a channel that is closed when they have passed,
// and a function that lets everything pass again.
func (p *proxy) holdAt(t testing.TB, n int64) (held <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold, p.held, p.released = p.down.Load()+n, make(chan struct{}), make(chan struct{})
	release = sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hold = 0
		close(p.released)
	})
	t.Cleanup(release)
	return p.held, release
}

func (p *proxy) cutLocked() {
	p.cuts++
	for c := range p.conns {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0) // sends a reset, as the host of a process that was killed does
		}
		c.Close()
	}
}

// cut cuts all connections now.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// cutAt cuts all connections after n more bytes to the client, and again after each of next more.
func (p *proxy) cutAt(n int64, next ...int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutAfter, p.cutNext = p.down.Load()+n, next
}

// cutsMade returns how often connections were cut.
func (p *proxy) cutsMade() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cuts
}

// setBackend changes the server of later connections, "" for none, and cuts all present ones.
func (p *proxy) setBackend(backend string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backend = backend
	p.cutLocked()
}

// connected reports whether there is a connection to the present backend.
func (p *proxy) connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.RemoteAddr().String() == p.backend {
			return true
		}
	}
	return false
}
