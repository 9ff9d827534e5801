package server

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
)

// TestSilentConnectionDoesNotDelayClose: a client that has connected and sends nothing, or stops
// within the handshake, is not waited for.
func TestSilentConnectionDoesNotDelayClose(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	withTLS := func(c *Config) { c.TLS = TLS(a.Pair("server")) }
	withoutTLS := func(*Config) {}
	begun := func(t *testing.T, conn net.Conn, first []byte) {
		if _, err := conn.Write(first); err != nil {
			t.Fatal(err)
		}
	}
	// The first frame of a server, which it sends after TLS and before it reads the preface.
	settingsOf := func(t *testing.T, conn net.Conn) {
		if _, err := io.ReadFull(conn, make([]byte, 9)); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Config)
		begin  func(*testing.T, net.Conn)
	}{
		"without TLS, silent":    {withoutTLS, func(*testing.T, net.Conn) {}},
		"with TLS, silent":       {withTLS, func(*testing.T, net.Conn) {}},
		"with TLS, half a hello": {withTLS, func(t *testing.T, conn net.Conn) { begun(t, conn, []byte{22, 3, 1, 2, 0, 1}) }},
		"half a preface": {withoutTLS, func(t *testing.T, conn net.Conn) {
			begun(t, conn, []byte(http2.ClientPreface[:10]))
			settingsOf(t, conn)
		}},
		"no SETTINGS": {withoutTLS, func(t *testing.T, conn net.Conn) {
			begun(t, conn, []byte(http2.ClientPreface))
			settingsOf(t, conn)
		}},
		"silent after TLS": {withTLS, func(t *testing.T, conn net.Conn) {
			//nolint:gosec // any certificate will do
			settingsOf(t, tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := settings(c.change)
			s := start(t, cfg, Options{Logger: slog.New(slog.DiscardHandler)})
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			c.begin(t, conn)
			// A call over a connection that came later: the server has accepted the silent one.
			client := Config{}
			if cfg.TLS.Cert != "" {
				client = clientConfig(TLS{CA: a.Path("ca.pem")})
			}
			if err := list(t, client, s.Addr().String()); err != nil {
				t.Fatal(err)
			}
			closed := make(chan error, 1)
			go func() { closed <- s.Close(context.Background()) }()
			select {
			case err := <-closed:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(12 * time.Second): // gRPC would wait for 20 s
				t.Error("Close waits for the silent connection")
				conn.Close()
				if err := <-closed; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestServedConnectionIsClosedInOrder: an idle connection that is served ends as gRPC ends it,
// with GOAWAY.
func TestServedConnectionIsClosedInOrder(t *testing.T) {
	s := start(t, settings(), Options{})
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	f := http2.NewFramer(conn, conn)
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		t.Fatal(err)
	}
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	var closed bool
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("the connection ended without GOAWAY: %v", err)
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if frame.IsAck() && !closed {
				closed = true
				go s.Close(context.Background()) // start's cleanup returns its error
			}
		case *http2.GoAwayFrame:
			return
		}
	}
}
