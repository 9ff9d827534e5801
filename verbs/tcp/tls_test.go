package tcp

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// tlsConfigs returns the configurations of a server for 127.0.0.1 and of its clients, each
// with a certificate that the other demands.
func tlsConfigs(t testing.TB) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own)
	certs := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	const alpn = "tryst-verbs"
	server = &tls.Config{Certificates: certs, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}}
	client = &tls.Config{Certificates: certs, RootCAs: pool, MinVersion: tls.VersionTLS13, NextProtos: []string{alpn}}
	return server, client
}

// tlsProvider is a provider whose devices share a listener of TLS with their owner.
type tlsProvider struct {
	*Provider
	t              testing.TB
	server, client *tls.Config
}

func (p *tlsProvider) Open(name string) (verbs.Device, error) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", p.server)
	if err != nil {
		return nil, err
	}
	d, err := New(Options{
		Listen: []string{l.Addr().String()},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: p.client}).DialContext(ctx, "tcp", address)
		},
	}).Open(name)
	if err != nil {
		l.Close()
		return nil, err
	}
	o := &ownedListener{Device: d, l: l}
	o.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.(Acceptor).Accept(c) //nolint:errcheck // every device of this package is one
		}
	})
	return o, nil
}

type ownedListener struct {
	verbs.Device
	l  net.Listener
	wg sync.WaitGroup
}

func (o *ownedListener) Close() error {
	err := o.Device.Close()
	if err == nil {
		o.l.Close()
		o.wg.Wait()
	}
	return err
}

// TestSuiteTLS: everything works over connections of TLS that the owner of a listener accepts.
func TestSuiteTLS(t *testing.T) {
	server, client := tlsConfigs(t)
	env := environment(Options{}, Options{})
	env.Ends = func(t testing.TB) (verbstest.End, verbstest.End) {
		p := &tlsProvider{Provider: New(Options{}), t: t, server: server, client: client}
		e := verbstest.End{Provider: p, Device: deviceName, Port: onlyPort}
		return e, e
	}
	verbstest.Run(t, env)
}
