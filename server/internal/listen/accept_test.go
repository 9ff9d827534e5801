package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/server/internal/lograte"
)

// strangers is a listener with the errors and connections of a test.
type strangers struct {
	accepted chan any // error or net.Conn
	closed   chan struct{}
}

func newStrangers() *strangers { return &strangers{make(chan any, 1000), make(chan struct{})} }

func (s *strangers) Accept() (net.Conn, error) {
	select {
	case <-s.closed:
		return nil, net.ErrClosed
	default:
	}
	select {
	case <-s.closed:
		return nil, net.ErrClosed
	case v, ok := <-s.accepted:
		if !ok {
			return nil, net.ErrClosed
		}
		if err, ok := v.(error); ok {
			return nil, &net.OpError{Op: "accept", Err: err}
		}
		return v.(net.Conn), nil //nolint:errcheck // nothing else is sent
	}
}

func (s *strangers) Close() error   { close(s.closed); return nil }
func (s *strangers) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// stranger is a connection from an address.
type stranger struct {
	net.Conn
	from   string
	closed atomic.Bool
}

func (s *stranger) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.ParseIP(s.from), Port: 2} }
func (s *stranger) Close() error         { s.closed.Store(true); return nil }

// lines counts the lines of a log.
type lines struct {
	slog.Handler
	n atomic.Int32
}

func (*lines) Enabled(context.Context, slog.Level) bool { return true }

func (l *lines) Handle(context.Context, slog.Record) error {
	l.n.Add(1)
	return nil
}

// countOf returns the value of a counter.
func countOf(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all[0].GetMetric()[0].GetCounter().GetValue()
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestAcceptErrorsDoNotEndAListener: neither those that gRPC and net/http know, nor others that pass. Each is
// counted, they are logged once a minute, and the pauses between attempts grow.
func TestAcceptErrorsDoNotEndAListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lines{Handler: slog.DiscardHandler}
		l, from := NewListeners(slog.New(log)), newStrangers()
		lis := l.steady(from, "listen")
		errs := []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM, syscall.ECONNABORTED, syscall.EPERM, syscall.EPROTO, syscall.EMFILE, syscall.EMFILE, syscall.EMFILE}
		for _, err := range errs {
			from.accepted <- err
		}
		honest := &stranger{from: "192.0.2.1"}
		from.accepted <- honest
		start := time.Now()
		conn, err := lis.Accept()
		if err != nil || conn != honest {
			t.Fatalf("got %v, %v", conn, err)
		}
		if took := time.Since(start); took < 2*time.Second || took > 10*time.Second {
			t.Errorf("%d attempts took %v: the pauses are from %v to %v", len(errs), took, acceptPauseMin, acceptPauseMax)
		}
		if got := countOf(t, lis.failed); got != float64(len(errs)) {
			t.Errorf("%v errors were counted, want %d", got, len(errs))
		}
		if got := log.n.Load(); got != 1 {
			t.Errorf("%d lines in the log, want 1", got)
		}
		time.Sleep(lograte.Pause)
		from.accepted <- syscall.EMFILE
		from.accepted <- honest
		if _, err := lis.Accept(); err != nil || log.n.Load() != 2 {
			t.Errorf("%v; after a minute there are %d lines, want 2", err, log.n.Load())
		}
	})
}

// TestAListenerThatIsClosedEnds: also while it pauses after an error. A listener that will never accept
// again ends with its error.
func TestAListenerThatIsClosedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from := newStrangers()
		lis := NewListeners(slog.New(slog.DiscardHandler)).steady(from, "listen")
		from.accepted <- syscall.EMFILE
		ended := make(chan error)
		go func() {
			_, err := lis.Accept()
			ended <- err
		}()
		synctest.Wait()
		_ = lis.Close()
		if err := <-ended; !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v", err)
		}
	})
	from := newStrangers()
	from.accepted <- syscall.EBADF
	if _, err := NewListeners(slog.New(slog.DiscardHandler)).steady(from, "listen").Accept(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("got %v", err)
	}
}

// TestHTTPConnectionsAreBounded: of one address and in all. Those beyond are closed at once, and their
// places are free again when others end.
func TestHTTPConnectionsAreBounded(t *testing.T) {
	l, from := NewListeners(slog.New(slog.DiscardHandler)), newStrangers()
	lis := l.bounded(from, "metrics-address")
	var last *stranger
	accept := func(address string) net.Conn {
		t.Helper()
		last = &stranger{from: address}
		from.accepted <- last
		ender := &stranger{from: "192.0.2.250"} // accepted if the first one is refused
		from.accepted <- ender
		conn, err := lis.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if last.closed.Load() {
			_ = conn.Close()
			return nil
		}
		if other, err := lis.Accept(); err == nil { // the ender
			_ = other.Close()
		}
		return conn
	}
	var open []net.Conn
	for i := range maxHTTPConnsPerAddress {
		conn := accept("192.0.2.1")
		if conn == nil {
			t.Fatalf("connection %d of an address was refused", i)
		}
		open = append(open, conn)
	}
	if accept("192.0.2.1") != nil {
		t.Errorf("an address has more than %d connections", maxHTTPConnsPerAddress)
	}
	if accept("192.0.2.2") == nil {
		t.Fatal("the connections of one address shut out another one")
	}
	_ = open[0].Close()
	_ = open[0].Close() // gives one place back
	if accept("192.0.2.1") == nil || accept("192.0.2.1") != nil {
		t.Error("a connection that ended did not give exactly one place back")
	}
	if got := countOf(t, l.Refused.WithLabelValues("metrics-address", RefusedByAddress)); got != 2 {
		t.Errorf("%v refused connections were counted, want 2", got)
	}
	for i := range maxHTTPConns - maxHTTPConnsPerAddress - 1 - newcomerHTTPConns { // one is that of 192.0.2.2
		if accept(fmt.Sprintf("203.0.113.%d", i/20+100)) == nil {
			t.Fatalf("connection %d of a few addresses was refused", i)
		}
	}
	if accept("203.0.113.100") != nil {
		t.Error("a few addresses can take all places")
	}
	for i := range newcomerHTTPConns - 1 { // one for the helper
		if accept(fmt.Sprintf("198.51.100.%d", i+1)) == nil {
			t.Fatalf("connection %d of different addresses was refused", i)
		}
	}
	from.accepted <- &stranger{from: "203.0.113.1"}
	if _, err := lis.Accept(); err != nil {
		t.Fatal(err)
	}
	over := &stranger{from: "203.0.113.2"}
	from.accepted <- over
	from.accepted <- syscall.EBADF
	if _, err := lis.Accept(); !errors.Is(err, syscall.EBADF) || !over.closed.Load() {
		t.Errorf("more than %d connections: %v", maxHTTPConns, err)
	}
}

// halfRequest sends the first part of a request to an HTTP listener.
