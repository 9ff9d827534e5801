package verbstransport_test

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

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/verbs"
	"github.com/tryst-rdma/tryst/verbs/tcp"
)

// mutualTLS returns the configuration of processes on 127.0.0.1, which demand each other's
// certificate.
func mutualTLS(t testing.TB) *tls.Config {
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
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, RootCAs: pool, ClientCAs: pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
}

// secured is a device over TCP whose owner has the listener, as a server does.
type secured struct {
	verbs.Device
	listener net.Listener
	work     sync.WaitGroup
}

func openSecured(config *tls.Config) (verbs.Device, error) {
	l, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return nil, err
	}
	d, err := tcp.New(tcp.Options{
		Listen: []string{l.Addr().String()},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			return (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", address)
		},
	}).Open("tcp0")
	if err != nil {
		l.Close()
		return nil, err
	}
	s := &secured{Device: d, listener: l}
	s.work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			d.(tcp.Acceptor).Accept(c) //nolint:errcheck // every device of this package is one
		}
	})
	return s, nil
}

func (s *secured) Close() error {
	err := s.Device.Close()
	if err == nil {
		s.listener.Close()
		s.work.Wait()
	}
	return err
}

// TestTCPWithTLSSuite runs the suite over queue pairs that are connections of mutual TLS.
func TestTCPWithTLSSuite(t *testing.T) {
	config := mutualTLS(t)
	open := func(cluster.Task) (verbs.Device, error) { return openSecured(config) }
	transporttest.Run(t, transporttest.Suite{New: newCluster(overOne(open)), MaxSize: largest, Registered: true, Parallel: true,
		Only: smoke("Cancel", "Content", "Cut", "Into", "Order", "Peer", "Stop")})
}
