package grpctransport

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
)

// sharingServer is a gRPC server that hands connections of queue pairs to accept.
type sharingServer struct {
	t      *testing.T
	port   *SharedPort
	lis    net.Listener
	server *grpc.Server
	served sync.WaitGroup
}

// acceptFunc is an Acceptor.
type acceptFunc func(net.Conn)

// Accept implements Acceptor.
func (f acceptFunc) Accept(c net.Conn) { f(c) }

func newSharingServer(t *testing.T, lis net.Listener, creds credentials.TransportCredentials, accept acceptFunc) *sharingServer {
	t.Helper()
	s := &sharingServer{t: t, port: NewSharedPort(accept), lis: lis}
	s.server = grpc.NewServer(ServerOptions(ServerTuning{Credentials: creds, Shared: s.port})...)
	healthpb.RegisterHealthServer(s.server, health.NewServer())
	s.served.Go(func() { _ = s.server.Serve(s.port.Listener(lis)) }) // ends with stop
	t.Cleanup(s.stop)
	return s
}

// stop ends the server as a process does.
func (s *sharingServer) stop() {
	s.port.End()
	s.server.GracefulStop()
	s.served.Wait()
}

// check makes a call of gRPC.
func (s *sharingServer) check(creds credentials.TransportCredentials) {
	s.t.Helper()
	conn, err := grpc.NewClient("passthrough:///"+s.lis.Addr().String(), grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.ForceCodecV2(newCodec())))
	if err != nil {
		s.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitLimit)
	defer cancel()
	if _, err := healthpb.NewHealthClient(conn).Check(ctx, &healthpb.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
		s.t.Error(err)
	}
}

// echo sends back what comes, until the connection ends.
func echo(conn net.Conn) {
	_ = conn.SetDeadline(time.Time{})
	_, _ = io.Copy(conn, conn)
	_ = conn.Close()
}

func listenTCP(t *testing.T) net.Listener {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return lis
}

// wantEcho sends a text and reads it back.
func wantEcho(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if err := conn.SetDeadline(time.Now().Add(waitLimit)); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
		t.Fatalf("got %q, %v; want %q", got, err, text)
	}
}

// TestQueuePairsShareThePort: without TLS the Acceptor gets connections that begin with the magic,
// from the first byte on, and gRPC the others.
func TestQueuePairsShareThePort(t *testing.T) {
	var works sync.WaitGroup
	defer works.Wait()
	s := newSharingServer(t, listenTCP(t), nil, func(conn net.Conn) {
		if _, ok := conn.(syscall.Conn); !ok {
			t.Error("the connection has no socket")
		}
		works.Go(func() { echo(conn) })
	})
	for range 3 {
		conn, err := net.Dial("tcp", s.lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		wantEcho(t, conn, verbsMagic+"and a frame")
		s.check(insecure.NewCredentials())
		wantEcho(t, conn, strings.Repeat("more", 1000))
	}
	if all, waiting := s.port.Connections(); all != 3 || waiting != 0 {
		t.Errorf("%d connections, %d of them without a frame", all, waiting)
	}
}

// TestQueuePairsShareThePortUnderTLS: TLS tells them apart by ALPN, and the Acceptor gets the
// verified certificate of the client.
func TestQueuePairsShareThePortUnderTLS(t *testing.T) {
	cert, pool := certificate(t)
	var works sync.WaitGroup
	defer works.Wait()
	creds := credentials.NewTLS(&tls.Config{
		Certificates: []tls.Certificate{cert}, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert,
		NextProtos: []string{"h2", VerbsProtocol}, MinVersion: tls.VersionTLS12,
	})
	s := newSharingServer(t, listenTCP(t), creds, func(conn net.Conn) {
		secure, ok := conn.(interface {
			ConnectionState() tls.ConnectionState
			NetConn() net.Conn
		})
		if !ok || len(secure.ConnectionState().VerifiedChains) == 0 {
			t.Error("the certificate of the client is not at hand")
		}
		if _, ok := secure.NetConn().(*net.TCPConn); !ok {
			t.Error("the socket is not at hand")
		}
		works.Go(func() { echo(conn) })
	})
	client := func(protocol string, version uint16) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{cert}, RootCAs: pool, ServerName: "127.0.0.1", NextProtos: []string{protocol}, MinVersion: tls.VersionTLS12, MaxVersion: version}
	}
	conn, err := tls.Dial("tcp", s.lis.Addr().String(), client(VerbsProtocol, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	wantEcho(t, conn, "a frame")
	s.check(credentials.NewTLS(client("h2", 0)))
	wantEcho(t, conn, "another one")

	old, err := tls.Dial("tcp", s.lis.Addr().String(), client(VerbsProtocol, tls.VersionTLS12))
	if err == nil {
		defer old.Close()
		_ = old.SetDeadline(time.Now().Add(waitLimit))
		_, _ = io.WriteString(old, "x") // fails when the server has refused already
		if _, err = old.Read(make([]byte, 1)); err == nil {
			t.Error("TLS 1.2 is accepted")
		}
	}
}

// pipeListener accepts the ends of pipes, so that time is virtual.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	end   chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), end: make(chan struct{})}
}

// Accept implements net.Listener.
func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.end:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *pipeListener) Close() error {
	l.once.Do(func() { close(l.end) })
	return nil
}

// Addr implements net.Listener.
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)} }

func (l *pipeListener) dial() net.Conn {
	client, server := net.Pipe()
	l.conns <- server
	return client
}

// TestFirstFrameHasADeadline: a connection that is handed over and sends no frame ends after
// firstFrameMax, and gRPC's deadline does not reach one that has sent it.
func TestFirstFrameHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := newPipeListener()
		var works sync.WaitGroup
		s := newSharingServer(t, lis, nil, func(conn net.Conn) {
			works.Go(func() {
				defer conn.Close()
				first := make([]byte, len(verbsMagic)+1)
				if _, err := io.ReadFull(conn, first); err == nil {
					echo(conn)
				}
			})
		})
		silent, speaks := lis.dial(), lis.dial()
		begin := time.Now()
		for _, c := range []net.Conn{silent, speaks} {
			if _, err := io.WriteString(c, verbsMagic); err != nil {
				t.Fatal(err)
			}
		}
		wantFrame := "1"
		if _, err := io.WriteString(speaks, wantFrame); err != nil {
			t.Fatal(err)
		}
		if _, err := silent.Read(make([]byte, 1)); err == nil || time.Since(begin) != firstFrameMax {
			t.Errorf("the silent connection ended after %v with %v", time.Since(begin), err)
		}
		time.Sleep(10 * connectMax)
		wantEcho(t, speaks, "still here")
		s.stop()
		if _, err := speaks.Read(make([]byte, 1)); err == nil {
			t.Error("the connection outlives the server")
		}
		works.Wait()
		silent.Close()
		speaks.Close()
	})
}

// TestConnectionsWithoutAFrameAreBounded: above maxWithoutFrame the oldest one ends, and those with
// a frame stay.
func TestConnectionsWithoutAFrameAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := newPipeListener()
		var works sync.WaitGroup
		greeted := true
		s := newSharingServer(t, lis, nil, func(conn net.Conn) {
			if greeted {
				works.Go(func() { echo(conn) })
				return
			}
			works.Go(func() { _, _ = io.Copy(io.Discard, conn); conn.Close() })
		})
		var conns []net.Conn
		begin := func() {
			c := lis.dial()
			conns = append(conns, c)
			if _, err := io.WriteString(c, verbsMagic); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		begin()
		if _, err := io.ReadFull(conns[0], make([]byte, len(verbsMagic))); err != nil {
			t.Fatal(err)
		}
		greeted = false
		for range maxWithoutFrame + 1 {
			begin()
		}
		if all, waiting := s.port.Connections(); all != 1+maxWithoutFrame || waiting != maxWithoutFrame {
			t.Errorf("%d connections, %d without a frame", all, waiting)
		}
		if _, err := conns[1].Read(make([]byte, 1)); err == nil {
			t.Error("the oldest connection is still there")
		}
		if _, err := io.WriteString(conns[2], "x"); err != nil {
			t.Errorf("the second one has gone: %v", err)
		}
		wantEcho(t, conns[0], "with a frame")
		for _, c := range conns {
			c.Close()
		}
		s.stop()
		works.Wait()
		if all, waiting := s.port.Connections(); all != 0 || waiting != 0 {
			t.Errorf("%d connections, %d without a frame", all, waiting)
		}
	})
}

// hostConn is a connection from an address.
type hostConn struct {
	net.Conn
	from   net.Addr
	closed bool
}

func (c *hostConn) RemoteAddr() net.Addr { return c.from }
func (c *hostConn) Close() error         { c.closed = true; return nil }

// TestAHostPushesOutItsOwnConnections: at the limit the oldest one without a first frame ends of the
// address that has most. Those of other hosts stay.
func TestAHostPushesOutItsOwnConnections(t *testing.T) {
	p := NewSharedPort(nil)
	add := func(from string) *hostConn {
		c := &hostConn{from: &net.TCPAddr{IP: net.ParseIP(from), Port: 1000 + int(p.next)}} //nolint:gosec // a test
		p.add(&handed{port: p, conn: c})
		return c
	}
	peers := []*hostConn{add("10.0.0.2"), add("fd00::2"), add("10.0.0.3")}
	first := add("10.0.0.9")
	for range 3 * maxWithoutFrame {
		add("10.0.0.9")
	}
	for _, c := range append(peers, add("10.0.0.4")) {
		if c.closed {
			t.Errorf("the connection from %v was closed", c.from)
		}
	}
	if all, waiting := p.Connections(); all != maxWithoutFrame || waiting != maxWithoutFrame || !first.closed {
		t.Errorf("%d connections, %d without a frame; the oldest one is closed: %v", all, waiting, first.closed)
	}
}

// TestForeignBytesOnASharedPort: whatever a client sends, it reaches the Acceptor only behind the
// magic, its connection ends, and nothing stays.
func TestForeignBytesOnASharedPort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := newPipeListener()
		s := newSharingServer(t, lis, nil, func(conn net.Conn) {
			first := make([]byte, len(verbsMagic))
			if _, err := io.ReadFull(conn, first); err != nil || string(first) != verbsMagic {
				t.Errorf("the Acceptor got %q", first)
			}
			conn.Close()
		})
		random := rand.NewChaCha8([32]byte{1})
		for i := range 200 {
			bytesOf := make([]byte, 1+i)
			_, _ = random.Read(bytesOf) // never fails
			switch i % 4 {
			case 0:
				bytesOf = append([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), bytesOf...)
			case 1:
				bytesOf = append([]byte(verbsMagic), bytesOf...)
			case 2:
				bytesOf = append([]byte("TRYSTQP2"), bytesOf...)
			}
			c := lis.dial()
			go func() { _, _ = c.Write(bytesOf) }()
			if _, err := io.Copy(io.Discard, c); err != nil && !errors.Is(err, io.ErrClosedPipe) {
				t.Error(err)
			}
			c.Close()
		}
		s.stop()
		if all, waiting := s.port.Connections(); all != 0 || waiting != 0 {
			t.Errorf("%d connections, %d without a frame", all, waiting)
		}
	})
}

// TestPortWithoutQueuePairs: a server without an Acceptor closes such a connection and says why.
func TestPortWithoutQueuePairs(t *testing.T) {
	server := grpc.NewServer(ServerOptions(ServerTuning{Logger: nil})...)
	lis := listenTCP(t)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(lis) })
	defer serving.Wait()
	defer server.Stop()
	conn, err := net.Dial("tcp", lis.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, verbsMagic); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(waitLimit))
	var got bytes.Buffer
	if _, err := io.Copy(&got, conn); errors.Is(err, os.ErrDeadlineExceeded) || got.Len() != 0 {
		t.Errorf("got %q, %v", got.Bytes(), err)
	}
}
