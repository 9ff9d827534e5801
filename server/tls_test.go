package server

import (
	"net"
	"testing"

	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/status"
)

func clientConfig(tls TLS) Config {
	c := Config{}
	c.TLS = tls
	return c
}

// list makes a call, and says what came of it.
func list(t *testing.T, c Config, target string) error {
	t.Helper()
	_, err := dial(t, c, target).Puller().List(t.Context())
	return err
}

func TestTLS(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	s := start(t, settings(func(c *Config) { c.TLS = TLS(a.Pair("server")) }), Options{})
	addr := s.Addr().String()
	if err := list(t, clientConfig(TLS{CA: a.Path("ca.pem")}), addr); err != nil {
		t.Errorf("with the authority: %v", err)
	}
	wantError(t, list(t, clientConfig(TLS{CA: a.Path("ca.pem"), ServerName: "elsewhere"}), addr), status.Unavailable, "elsewhere")
	wantError(t, list(t, clientConfig(TLS{ServerName: "127.0.0.1"}), addr), status.Unavailable, "signed by no authority that this process trusts", "unknown authority")
	if err := list(t, Config{}, addr); err == nil {
		t.Error("a client without TLS was served")
	}
}

// TestTLSToAnAddressWithAZone: a certificate has the address without the zone, which means something
// on the dialing host alone. tls.server-name still counts.
func TestTLSToAnAddressWithAZone(t *testing.T) {
	needsLoopback(t, "::1")
	lo := ""
	all, err := net.Interfaces()
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			lo = i.Name
		}
	}
	if err != nil || lo == "" {
		t.Fatalf("no loopback interface: %v", err)
	}
	a := certtest.New(t)
	a.Make("server", []net.IP{net.IPv6loopback})
	s := start(t, settings(func(c *Config) { c.TLS, c.Listen = TLS(a.Pair("server")), "[::1]:0" }), Options{})
	_, port, _ := net.SplitHostPort(s.Addr().String())
	addr := net.JoinHostPort("::1%"+lo, port)
	if err := list(t, clientConfig(TLS{CA: a.Path("ca.pem")}), addr); err != nil {
		t.Error(err)
	}
	wantError(t, list(t, clientConfig(TLS{CA: a.Path("ca.pem"), ServerName: "elsewhere"}), addr), status.Unavailable, "elsewhere")
	if err := list(t, Config{}, addr); err == nil {
		t.Error("a client without TLS was served")
	}
}

func TestMutualTLS(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	a.Make("client", nil)
	s := start(t, settings(func(c *Config) {
		c.TLS = TLS(a.Pair("server"))
		c.TLS.RequireClientCert = true
	}), Options{})
	addr := s.Addr().String()
	if err := list(t, clientConfig(TLS(a.Pair("client"))), addr); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := list(t, clientConfig(TLS{CA: a.Path("ca.pem")}), addr); err == nil {
		t.Error("a client without certificate was served")
	}
	stranger := certtest.New(t)
	stranger.Make("client", nil)
	tls := TLS(stranger.Pair("client"))
	tls.CA = a.Path("ca.pem")
	if err := list(t, clientConfig(tls), addr); err == nil {
		t.Error("a client of another authority was served")
	}
}

func TestTLSFilesThatAreWrong(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	a.Make("other", certtest.Loopback)
	a.Write("empty.pem", "NOTHING", nil)
	for name, c := range map[string]struct {
		tls  TLS
		text string
	}{
		"missing":        {TLS{Cert: a.Path("no.pem"), Key: a.Path("server.key")}, "no.pem"},
		"another's key":  {TLS{Cert: a.Path("server.pem"), Key: a.Path("other.key")}, "does not match"},
		"no certificate": {TLS{Cert: a.Path("server.pem"), Key: a.Path("server.key"), CA: a.Path("empty.pem")}, "empty.pem"},
		"missing CA":     {TLS{Cert: a.Path("server.pem"), Key: a.Path("server.key"), CA: a.Path("none.pem")}, "none.pem"},
	} {
		_, err := Start(t.Context(), settings(func(cfg *Config) { cfg.TLS = c.tls }), Options{})
		t.Run(name, func(t *testing.T) { wantError(t, err, status.InvalidArgument, "tls.", c.text) })
	}
}
