package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/status"
)

// authority makes certificates for tests.
type authority struct {
	t    *testing.T
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64

	lifetime time.Duration // of the certificates, from now
}

func newAuthority(t *testing.T) *authority {
	a := &authority{t: t, dir: t.TempDir(), lifetime: time.Hour}
	a.cert, a.key = a.make("ca", nil)
	return a
}

// make writes NAME.pem and NAME.key, signed by the authority, and returns the
// certificate.
func (a *authority) make(name string, ips []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	return a.makeFor(name, name, ips)
}

// makeFor is make with another common name.
func (a *authority) makeFor(commonName, name string, ips []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.n), Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(a.lifetime), IPAddresses: ips,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	parent, signer := a.cert, a.key
	if parent == nil {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.ExtKeyUsage = true, true, x509.KeyUsageCertSign, nil
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, signer)
	if err != nil {
		a.t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.t.Fatal(err)
	}
	a.write(name+".pem", "CERTIFICATE", der)
	a.write(name+".key", "PRIVATE KEY", pkcs8)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return parsed, key
}

func (a *authority) write(name, kind string, der []byte) {
	if err := os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

func (a *authority) path(name string) string { return filepath.Join(a.dir, name) }

// pair returns the settings of who shows the certificate name.
func (a *authority) pair(name string) config.TLS {
	return config.TLS{Cert: a.path(name + ".pem"), Key: a.path(name + ".key"), CA: a.path("ca.pem")}
}

var loopbackIPs = []net.IP{net.IPv4(127, 0, 0, 1)}

func clientConfig(tls config.TLS) config.Client {
	c := config.Default().Client
	c.TLS = tls
	return c
}

// list makes a call, and says what came of it.
func list(t *testing.T, c config.Client, target string) error {
	t.Helper()
	_, err := dial(t, c, target).Puller().List(t.Context())
	return err
}

func TestTLS(t *testing.T) {
	a := newAuthority(t)
	a.make("server", loopbackIPs)
	s := start(t, settings(func(c *config.Config) { c.TLS = a.pair("server") }), Options{})
	addr := s.Addr().String()
	if err := list(t, clientConfig(config.TLS{CA: a.path("ca.pem")}), addr); err != nil {
		t.Errorf("with the authority: %v", err)
	}
	wantError(t, list(t, clientConfig(config.TLS{CA: a.path("ca.pem"), ServerName: "elsewhere"}), addr), status.Unavailable, "elsewhere")
	wantError(t, list(t, clientConfig(config.TLS{ServerName: "127.0.0.1"}), addr), status.Unavailable, "signed by no authority that this process trusts", "unknown authority")
	if err := list(t, config.Client{}, addr); err == nil {
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
	a := newAuthority(t)
	a.make("server", []net.IP{net.IPv6loopback})
	s := start(t, settings(func(c *config.Config) { c.TLS, c.Listen = a.pair("server"), "[::1]:0" }), Options{})
	_, port, _ := net.SplitHostPort(s.Addr().String())
	addr := net.JoinHostPort("::1%"+lo, port)
	if err := list(t, clientConfig(config.TLS{CA: a.path("ca.pem")}), addr); err != nil {
		t.Error(err)
	}
	wantError(t, list(t, clientConfig(config.TLS{CA: a.path("ca.pem"), ServerName: "elsewhere"}), addr), status.Unavailable, "elsewhere")
	if err := list(t, config.Client{}, addr); err == nil {
		t.Error("a client without TLS was served")
	}
}

func TestMutualTLS(t *testing.T) {
	a := newAuthority(t)
	a.make("server", loopbackIPs)
	a.make("client", nil)
	s := start(t, settings(func(c *config.Config) {
		c.TLS = a.pair("server")
		c.TLS.RequireClientCert = true
	}), Options{})
	addr := s.Addr().String()
	if err := list(t, clientConfig(a.pair("client")), addr); err != nil {
		t.Errorf("with a certificate: %v", err)
	}
	if err := list(t, clientConfig(config.TLS{CA: a.path("ca.pem")}), addr); err == nil {
		t.Error("a client without certificate was served")
	}
	stranger := newAuthority(t)
	stranger.make("client", nil)
	tls := stranger.pair("client")
	tls.CA = a.path("ca.pem")
	if err := list(t, clientConfig(tls), addr); err == nil {
		t.Error("a client of another authority was served")
	}
}

func TestTLSFollowsItsFiles(t *testing.T) {
	a := newAuthority(t)
	first, _ := a.make("server", loopbackIPs)
	pair, err := loadPair(a.pair("server"))
	if err != nil {
		t.Fatal(err)
	}
	serial := func() *big.Int {
		c, err := pair.current()
		if err != nil {
			t.Fatal(err)
		}
		return c.Leaf.SerialNumber
	}
	if serial().Cmp(first.SerialNumber) != 0 {
		t.Error("not the first certificate")
	}
	renewed, _ := a.make("server", loopbackIPs)
	later := time.Now().Add(time.Second)
	for _, f := range []string{"server.pem", "server.key"} {
		if err := os.Chtimes(a.path(f), later, later); err != nil {
			t.Fatal(err)
		}
	}
	if serial().Cmp(renewed.SerialNumber) != 0 {
		t.Error("the renewed certificate is not used")
	}
	if err := os.WriteFile(a.path("server.pem"), []byte("half a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if serial().Cmp(renewed.SerialNumber) != 0 {
		t.Error("a file that is being written took the certificate away")
	}
}

func TestTLSFilesThatAreWrong(t *testing.T) {
	a := newAuthority(t)
	a.make("server", loopbackIPs)
	a.make("other", loopbackIPs)
	a.write("empty.pem", "NOTHING", nil)
	for name, c := range map[string]struct {
		tls  config.TLS
		text string
	}{
		"missing":        {config.TLS{Cert: a.path("no.pem"), Key: a.path("server.key")}, "no.pem"},
		"another's key":  {config.TLS{Cert: a.path("server.pem"), Key: a.path("other.key")}, "does not match"},
		"no certificate": {config.TLS{Cert: a.path("server.pem"), Key: a.path("server.key"), CA: a.path("empty.pem")}, "empty.pem"},
		"missing CA":     {config.TLS{Cert: a.path("server.pem"), Key: a.path("server.key"), CA: a.path("none.pem")}, "none.pem"},
	} {
		_, err := Start(t.Context(), settings(func(cfg *config.Config) { cfg.TLS = c.tls }), Options{})
		t.Run(name, func(t *testing.T) { wantError(t, err, status.InvalidArgument, "tls.", c.text) })
	}
}
