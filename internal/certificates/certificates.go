// Package certificates turns the settings of TLS into what gRPC and queue pairs need. The files of a
// certificate are read again when they change, so a renewal needs no restart.
package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tryst-rdma/tryst/status"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// ServerCredentials returns the credentials of the listener: TLS if there is a certificate,
// otherwise none. shared allows clients with queue pairs.
func ServerCredentials(c Files, shared bool) (credentials.TransportCredentials, error) {
	if c.Cert == "" {
		return insecure.NewCredentials(), nil
	}
	pair, err := loadPair(c)
	if err != nil {
		return nil, err
	}
	t := &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return pair.current()
		},
	}
	if t.ClientCAs, err = loadCA(c); err != nil {
		return nil, err
	}
	switch {
	case c.RequireClientCert:
		t.ClientAuth = tls.RequireAndVerifyClientCert
	case t.ClientCAs != nil:
		t.ClientAuth = tls.VerifyClientCertIfGiven
	}
	if shared {
		t.NextProtos = []string{"h2", grpctransport.VerbsProtocol}
	}
	return credentials.NewTLS(t), nil
}

// ClientCredentials returns the credentials for connections to peers, from ClientTLS.
func ClientCredentials(t *tls.Config) credentials.TransportCredentials {
	if t == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(t)
}

// ClientTLS returns the configuration for connections to peers; nil without TLS.
func ClientTLS(c Files) (*tls.Config, error) {
	if !c.Enabled() {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	var err error
	if t.RootCAs, err = loadCA(c); err != nil {
		return nil, err
	}
	if c.Cert != "" {
		pair, err := loadPair(c)
		if err != nil {
			return nil, err
		}
		t.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return pair.current()
		}
	}
	return t, nil
}

func loadCA(c Files) (*x509.CertPool, error) {
	if c.CA == "" {
		return nil, nil
	}
	data, err := os.ReadFile(c.CA)
	if err != nil {
		return nil, status.Errorf(status.InvalidArgument, "tls.ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, status.Errorf(status.InvalidArgument, "tls.ca: %s holds no certificate in PEM form", c.CA)
	}
	return pool, nil
}

// keyPair is a certificate and its key. It reads the files again when they change, since
// certificates are renewed while servers run.
type keyPair struct {
	cert, key string

	mu     sync.Mutex // guards what follows
	loaded *tls.Certificate
	at     [2]time.Time // modification times of the loaded files
}

func loadPair(c Files) (*keyPair, error) {
	p := &keyPair{cert: c.Cert, key: c.Key}
	if _, err := p.current(); err != nil {
		return nil, status.Errorf(status.InvalidArgument, "%w", err)
	}
	return p, nil
}

// load reads the two files. Its errors begin with the setting that names the wrong file.
func (p *keyPair) load() (*tls.Certificate, error) {
	cert, err := os.ReadFile(p.cert)
	if err != nil {
		return nil, fmt.Errorf("tls.cert: %w", err)
	}
	key, err := os.ReadFile(p.key)
	if err != nil {
		return nil, fmt.Errorf("tls.key: %w", err)
	}
	if !holdsPEM(cert, "CERTIFICATE") {
		return nil, fmt.Errorf("tls.cert: %s holds no certificate in PEM form", p.cert)
	}
	if !holdsPEM(key, "PRIVATE KEY") {
		return nil, fmt.Errorf("tls.key: %s holds no unencrypted private key in PEM form", p.key)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls.cert %s, tls.key %s: %w", p.cert, p.key, err)
	}
	return &pair, nil
}

// holdsPEM reports whether data has a PEM block of the given kind, or of one such as "EC
// PRIVATE KEY", that is not encrypted. The old form of an encrypted key differs by a header
// (RFC 1421, 4.6.1.3), the new one by its kind (RFC 7468, 11).
func holdsPEM(data []byte, kind string) bool {
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return false
		}
		_, old := block.Headers["DEK-Info"]
		encrypted := old || strings.HasPrefix(block.Type, "ENCRYPTED ")
		if !encrypted && (block.Type == kind || strings.HasSuffix(block.Type, " "+kind)) {
			return true
		}
		data = rest
	}
}

// current returns the certificate. It reads the files again if one has changed. If they cannot be
// read or do not match, as in the middle of a renewal, it returns the old certificate.
func (p *keyPair) current() (*tls.Certificate, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, err := p.changed()
	if err == nil && (p.loaded == nil || at != p.at) {
		var pair *tls.Certificate
		if pair, err = p.load(); err == nil {
			p.loaded, p.at = pair, at
		}
	}
	if p.loaded != nil {
		return p.loaded, nil
	}
	return nil, err
}

// changed returns the modification times of the two files.
func (p *keyPair) changed() (at [2]time.Time, err error) {
	for i, f := range []struct{ setting, path string }{{"tls.cert", p.cert}, {"tls.key", p.key}} {
		info, err := os.Stat(f.path)
		if err != nil {
			return at, fmt.Errorf("%s: %w", f.setting, err)
		}
		at[i] = info.ModTime()
	}
	return at, nil
}

// Protection returns how far the gRPC connections of a process are protected. A server proves the
// names of its peers only if it requires certificates of all.
func Protection(c Files, listens bool) verbstransport.TLS {
	switch {
	case !c.Enabled():
		return verbstransport.NoTLS
	case listens && c.RequireClientCert, !listens && c.Cert != "":
		return verbstransport.MutualTLS
	}
	return verbstransport.ServerTLS
}
