package bench

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// slowProxy is a slow network between a watcher and a publisher: a proxy for TCP connections, all of which share its rate in
// each direction. It owns its goroutines; close waits for them.
type slowProxy struct {
	listener net.Listener
	to       string // address of the publisher
	up, down *limiter

	ctx    context.Context // ends with close
	cancel context.CancelFunc
	work   sync.WaitGroup
}

// newSlowProxy makes a proxy of so many bits a second.
func newSlowProxy(ctx context.Context, to string, bits float64) (*slowProxy, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", loopback)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "the listener of the slow network: %w", err)
	}
	p := &slowProxy{listener: listener, to: to, up: &limiter{rate: bits / 8}, down: &limiter{rate: bits / 8}}
	p.ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.work.Go(p.accept)
	return p, nil
}

func (p *slowProxy) address() string { return p.listener.Addr().String() }

// moved returns how many bytes went to the watcher.
func (p *slowProxy) moved() int64 { return p.down.bytes.Load() }

func (p *slowProxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if err != nil {
			return // closed
		}
		p.work.Go(func() { p.serve(conn) })
	}
}

// serve carries one connection until either side ends it.
func (p *slowProxy) serve(near net.Conn) {
	defer near.Close()
	var d net.Dialer
	far, err := d.DialContext(p.ctx, "tcp", p.to)
	if err != nil {
		return
	}
	defer far.Close()
	for _, c := range []net.Conn{near, far} {
		if tcp, ok := c.(*net.TCPConn); ok { // what the kernel queues would seem to have arrived
			_ = tcp.SetReadBuffer(proxyBuffer)
			_ = tcp.SetWriteBuffer(proxyBuffer)
		}
	}
	stop := context.AfterFunc(p.ctx, func() { near.Close(); far.Close() })
	defer stop()
	var both sync.WaitGroup
	both.Go(func() { p.up.carry(p.ctx, far, near); far.Close() })
	both.Go(func() { p.down.carry(p.ctx, near, far); near.Close() })
	both.Wait()
}

func (p *slowProxy) close() {
	p.listener.Close()
	p.cancel()
	p.work.Wait()
}

// limiter is one direction of a proxy.
type limiter struct {
	rate  float64 // bytes a second
	bytes atomic.Int64

	mu   sync.Mutex
	free time.Time // when what was sent has left; guarded by mu
}

// carry copies until a side ends.
func (l *limiter) carry(ctx context.Context, to io.Writer, from io.Reader) {
	packet := make([]byte, proxyPacket)
	for {
		n, err := from.Read(packet)
		if l.send(ctx, n) != nil {
			return
		}
		if _, failed := to.Write(packet[:n]); err != nil || failed != nil {
			return
		}
	}
}

// send returns when n bytes have passed.
func (l *limiter) send(ctx context.Context, n int) error {
	l.bytes.Add(int64(n))
	l.mu.Lock()
	now := time.Now()
	if least := now.Add(-proxyBurst); l.free.Before(least) { // a timer that was late is made up for
		l.free = least
	}
	l.free = l.free.Add(time.Duration(float64(n) / l.rate * float64(time.Second)))
	wait := l.free.Sub(now)
	l.mu.Unlock()
	if wait < proxyTick { // a timer is not that exact; what follows waits for it, too
		return nil
	}
	return pause(ctx, wait)
}
