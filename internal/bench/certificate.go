package bench

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// certificate is one for this host, signed by itself: its own authority.
type certificate struct {
	der []byte
	key *ecdsa.PrivateKey
}

func newCertificate() (c certificate, err error) {
	if c.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "tryst-bench"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	c.der, err = x509.CreateCertificate(rand.Reader, template, template, &c.key.PublicKey, c.key)
	return c, err
}

// certificate returns it as crypto/tls has it.
func (c certificate) certificate() tls.Certificate {
	return tls.Certificate{Certificate: [][]byte{c.der}, PrivateKey: c.key}
}

// save writes it into dir, and returns the settings by which both processes use it: mutual TLS.
func (c certificate) save(dir string) (t server.TLS, err error) {
	key, err := x509.MarshalPKCS8PrivateKey(c.key)
	if err != nil {
		return t, err
	}
	t.Cert, t.Key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	t.CA = t.Cert
	for path, block := range map[string]*pem.Block{t.Cert: {Type: "CERTIFICATE", Bytes: c.der}, t.Key: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			return t, status.Errorf(status.Unavailable, "the certificate of the benchmark: %w", err)
		}
	}
	return t, nil
}
