package transporttest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// talker listens, and sends a given number of bytes of noise for each byte that it gets.
func talker(t *testing.T, answer []byte) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			work.Go(func() {
				defer c.Close()
				for one := make([]byte, 1); ; {
					if _, err := c.Read(one); err != nil {
						return
					}
					if _, err := c.Write(answer); err != nil {
						return
					}
				}
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String()
}

// through returns a proxy to a talker and a connection through it.
func through(t *testing.T, answer []byte) (*Proxy, net.Conn) {
	t.Helper()
	target := talker(t, answer)
	p := NewProxy(t)
	p.SetTarget(target)
	return p, dial(t, p)
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(caseTimeout))
	return c
}

func ask(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

func mustRead(t *testing.T, c net.Conn, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatal("other bytes than were sent")
	}
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(caseTimeout):
		t.Fatal("it has not happened")
	}
}

func answerOf(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(i * 7)
	}
	return b
}

func TestProxyCarriesAndCounts(t *testing.T) {
	answer := answerOf(1 << 20)
	p, c := through(t, answer)
	for range 3 {
		ask(t, c)
		mustRead(t, c, answer)
	}
	if n := p.Carried(); n != 3<<20 {
		t.Errorf("it has carried %d bytes", n)
	}
}

func TestProxyPassesTheEndOn(t *testing.T) {
	p, c := through(t, answerOf(1))
	if half, ok := c.(*net.TCPConn); !ok || half.CloseWrite() != nil {
		t.Fatal("this side cannot be ended")
	}
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want EOF", err)
	}
	p.Close()
}

func TestProxyCutAfter(t *testing.T) {
	answer := answerOf(1 << 20)
	p, c := through(t, answer)
	const n = 300_001
	cut := p.CutAfter(n)
	ask(t, c)
	got, err := io.ReadAll(c)
	wait(t, cut)
	// The reset discards bytes that are not received yet.
	if len(got) > n || !bytes.HasPrefix(answer, got) {
		t.Errorf("%d bytes arrived, want at most %d, as sent", len(got), n)
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
	again := dial(t, p)
	ask(t, again)
	mustRead(t, again, answer)
}

func TestProxyCutAtOnce(t *testing.T) {
	p, c := through(t, answerOf(10))
	ask(t, c)
	mustRead(t, c, answerOf(10))
	wait(t, p.CutAfter(0))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
}

func TestProxyHoldAfter(t *testing.T) {
	answer := answerOf(1 << 20)
	p, c := through(t, answer)
	const n = 200_000
	held := p.HoldAfter(n)
	ask(t, c)
	wait(t, held)
	mustRead(t, c, answer[:n])
	if got := p.Carried(); got != n {
		t.Errorf("it has carried %d bytes while it holds, want %d", got, n)
	}
	other := dial(t, p) // new connections are held too
	ask(t, other)
	p.Release()
	mustRead(t, c, answer[n:])
	mustRead(t, other, answer)
}

func TestProxyCutsWhileItHolds(t *testing.T) {
	p, c := through(t, answerOf(10))
	ask(t, c)
	mustRead(t, c, answerOf(10)) // so that the proxy has taken the connection
	wait(t, p.HoldAfter(0))
	ask(t, c)
	wait(t, p.CutAfter(0))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v, want a reset", err)
	}
}

func TestProxyThrottle(t *testing.T) {
	answer := answerOf(1 << 20)
	p, c := through(t, answer)
	p.Throttle(4 << 20)
	since := time.Now()
	ask(t, c)
	mustRead(t, c, answer)
	// The first part passes at once, the last one a quarter of a second later. On a loaded
	// machine it may take longer.
	if d := time.Since(since); d < 200*time.Millisecond {
		t.Errorf("1 MiB at 4 MiB/s took %v", d)
	}
}

// TestProxyListensTwice: both addresses lead to the target, and a cut is one of both.
func TestProxyListensTwice(t *testing.T) {
	p, first := through(t, answerOf(10))
	other := p.Listen(t)
	if other == p.Addr() {
		t.Fatal("the addresses are the same")
	}
	second, err := net.Dial("tcp", other)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	for _, c := range []net.Conn{first, second} {
		ask(t, c)
		mustRead(t, c, answerOf(10))
	}
	wait(t, p.CutAfter(0))
	for _, c := range []net.Conn{first, second} {
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("the connection ended with %v, want a reset", err)
		}
	}
	p.Close()
	if c, err := net.Dial("tcp", other); err == nil {
		c.Close()
		t.Error("somebody listens after Close")
	}
}

func TestProxyWithoutTarget(t *testing.T) {
	p, c := through(t, answerOf(10))
	ask(t, c)
	mustRead(t, c, answerOf(10))
	p.SetTarget("")
	if other, err := net.Dial("tcp", p.Addr()); err == nil { // the reset may come first
		defer other.Close()
		if _, err := other.Read(make([]byte, 1)); err == nil {
			t.Error("somebody answers")
		}
	}
	ask(t, c) // the old connection goes on
	mustRead(t, c, answerOf(10))
}

// TestProxyCloseWaits: Close also ends held connections, and no goroutine of the proxy is left
// (goleak).
func TestProxyCloseWaits(t *testing.T) {
	p, c := through(t, answerOf(10))
	ask(t, c)
	mustRead(t, c, answerOf(10))
	wait(t, p.HoldAfter(0))
	ask(t, c)
	p.Close()
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection lives")
	}
	p.Close()
}

// TestProxyRefusesOneProtocol: connections that begin with given bytes are reset, open ones and new
// ones, until none are refused; others stay.
func TestProxyRefusesOneProtocol(t *testing.T) {
	p, first := through(t, []byte("y"))
	begins := func(c net.Conn, text string) error {
		if _, err := io.WriteString(c, text); err != nil {
			return err
		}
		_, err := io.ReadFull(c, make([]byte, len(text)))
		return err
	}
	second := dial(t, p)
	for c, text := range map[net.Conn]string{first: "ABCD", second: "ABXY"} {
		if err := begins(c, text); err != nil {
			t.Fatal(err)
		}
	}
	p.Refuse("ABC")
	if _, err := first.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the open connection: got %v, want that it was reset", err)
	}
	if err := begins(dial(t, p), "ABCD"); err == nil {
		t.Error("a new connection was not refused")
	}
	for _, c := range []net.Conn{second, dial(t, p)} {
		if err := begins(c, "ABXY"); err != nil {
			t.Errorf("a connection of another protocol: %v", err)
		}
	}
	p.Refuse("")
	if err := begins(dial(t, p), "ABCD"); err != nil {
		t.Errorf("when none are refused: %v", err)
	}
}
