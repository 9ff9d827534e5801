package server

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/certificates"
	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// acceptingProvider has devices that take connections, as the one over TCP.
type acceptingProvider struct {
	verbs.Provider
	accept func(net.Conn)
}

// Open implements verbs.Provider.
func (p acceptingProvider) Open(name string) (verbs.Device, error) {
	d, err := p.Provider.Open(name)
	return acceptingDevice{d, p.accept}, err
}

type acceptingDevice struct {
	verbs.Device
	accept func(net.Conn)
}

// Accept implements grpctransport.Acceptor.
func (d acceptingDevice) Accept(c net.Conn) { d.accept(c) }

// TestServerSharesItsPort: connections of queue pairs reach the device that takes them, without TLS
// and with mutual TLS, beside gRPC's on the same port. Close ends them.
func TestServerSharesItsPort(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	a.Make("client", nil)
	for name, c := range map[string]struct{ server, client TLS }{
		"plain":      {},
		"mutual TLS": {TLS(a.Pair("server")), TLS(a.Pair("client"))},
	} {
		t.Run(name, func(t *testing.T) {
			fabric := verbstest.NewFabric(verbstest.Options{})
			defer fabric.Close()
			var works sync.WaitGroup
			defer works.Wait()
			provider := acceptingProvider{fabric.Provider("host"), func(conn net.Conn) {
				if c, ok := conn.(interface{ ConnectionState() tls.ConnectionState }); ok && len(c.ConnectionState().VerifiedChains) == 0 {
					t.Error("the client's certificate is not at hand")
				}
				works.Go(func() {
					defer conn.Close()
					_ = conn.SetDeadline(time.Time{})
					_, _ = io.Copy(conn, conn)
				})
			}}
			s := start(t, settings(func(cfg *Config) {
				cfg.Transport, cfg.RDMA.Arena, cfg.RDMA.ArenaLimit = "verbs", 1<<20, 4<<20
				cfg.TLS, cfg.TLS.RequireClientCert = c.server, c.server.Cert != ""
			}), Options{Provider: provider})
			conn, err := connectVerbs(t, s.Addr().String(), c.client)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := list(t, clientConfig(c.client), s.Addr().String()); err != nil {
				t.Error(err)
			}
			const text = "TRYSTQP1 and a frame"
			_ = conn.SetDeadline(time.Now().Add(soon))
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(text))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != text {
				t.Errorf("got %q, %v", got, err)
			}
			if err := s.Close(context.Background()); err != nil {
				t.Error(err)
			}
			if n, err := conn.Read(got); err == nil {
				t.Errorf("after Close %d bytes come", n)
			}
		})
	}
}

// connectVerbs connects as a device over TCP does.
func connectVerbs(t *testing.T, address string, c TLS) (net.Conn, error) {
	t.Helper()
	security, err := certificates.ClientTLS(certificates.Files(c))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), soon)
	defer cancel()
	return grpctransport.DialOptions{}.ConnectVerbs(ctx, address, security)
}

// TestRefusedQueuePairsInWords: a server without a device for them, or with other certificates, is
// described as for gRPC.
func TestRefusedQueuePairsInWords(t *testing.T) {
	a, stranger := certtest.New(t), certtest.New(t)
	a.Make("server", certtest.Loopback)
	a.Make("client", nil)
	stranger.Make("client", nil)
	withTLS := func(c *Config) { c.TLS = TLS(a.Pair("server")) }
	without := start(t, settings(withTLS, func(c *Config) { c.Transport = TransportGRPC }), Options{})
	fabric := verbstest.NewFabric(verbstest.Options{})
	defer fabric.Close()
	with := start(t, settings(withTLS, func(c *Config) { c.Transport, c.RDMA.Arena, c.RDMA.ArenaLimit = "verbs", 1<<20, 4<<20 }),
		Options{Provider: acceptingProvider{fabric.Provider("host"), func(c net.Conn) { c.Close() }}})
	defer with.Close(context.Background()) // before the fabric; start returns its error
	other := TLS(a.Pair("client"))
	other.ServerName = "other.example"
	for name, c := range map[string]struct {
		server *Server
		client TLS
		says   string
	}{
		"no device":         {without, TLS(a.Pair("client")), "takes no queue pairs over TCP"},
		"another name":      {with, other, "is for another name: set tls.server-name"},
		"another authority": {with, TLS(stranger.Pair("client")), "is signed by no authority that this process trusts"},
	} {
		conn, err := connectVerbs(t, c.server.Addr().String(), c.client)
		if err == nil {
			conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	plain := start(t, settings(), Options{})
	if _, err := connectVerbs(t, plain.Addr().String(), TLS(a.Pair("client"))); err == nil || !strings.Contains(err.Error(), "is a gRPC server without TLS") {
		t.Errorf("a server without TLS: %v", err)
	}
}
