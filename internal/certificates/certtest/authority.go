// Package certtest makes certificates for tests.
package certtest

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
)

// Authority is a certificate authority, with files in Dir.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	n    int64

	Dir      string
	Lifetime time.Duration // of the certificates, from now
}

// New makes an authority in a directory of the test.
func New(t testing.TB) *Authority {
	a := &Authority{t: t, Dir: t.TempDir(), Lifetime: time.Hour}
	a.cert, a.key = a.Make("ca", nil)
	return a
}

// Make writes NAME.pem and NAME.key, signed by the authority, and returns the
// certificate.
func (a *Authority) Make(name string, ips []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	return a.MakeFor(name, name, ips)
}

// MakeFor is make with another common name.
func (a *Authority) MakeFor(commonName, name string, ips []net.IP) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	a.n++
	c := &x509.Certificate{
		SerialNumber: big.NewInt(a.n), Subject: pkix.Name{CommonName: commonName},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(a.Lifetime), IPAddresses: ips,
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
	a.Write(name+".pem", "CERTIFICATE", der)
	a.Write(name+".key", "PRIVATE KEY", pkcs8)
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return parsed, key
}

// Write writes a block of PEM to the file name.
func (a *Authority) Write(name, kind string, der []byte) {
	if err := os.WriteFile(a.Path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// Path returns the path of a file of the authority.
func (a *Authority) Path(name string) string { return filepath.Join(a.Dir, name) }

// Files are the settings of TLS: certificates.Files and server.TLS are converted from it.
type Files struct {
	Cert, Key, CA, ServerName string
	RequireClientCert         bool
}

// Pair returns the settings of a process with the certificate name.
func (a *Authority) Pair(name string) Files {
	return Files{Cert: a.Path(name + ".pem"), Key: a.Path(name + ".key"), CA: a.Path("ca.pem")}
}

// Loopback has the addresses of a certificate for processes of this host.
var Loopback = []net.IP{net.IPv4(127, 0, 0, 1)}
