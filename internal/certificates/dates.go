package certificates

import (
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"time"
)

// A certificate that has expired is found by the other side, which sends an alert that often does not say
// so. This process knows its own dates: it warns at the start, and names them as the reason of a refusal.

// invalid returns how a certificate is not valid at a time; "" if it is.
func invalid(c *x509.Certificate, now time.Time) string {
	switch {
	case c == nil:
		return ""
	case now.After(c.NotAfter):
		return "it has expired, on " + c.NotAfter.UTC().Format(time.RFC3339)
	case now.Before(c.NotBefore):
		return "it is not valid before " + c.NotBefore.UTC().Format(time.RFC3339)
	}
	return ""
}

// OutOfDates returns a function that returns how the certificate of this process, which may be renewed
// meanwhile, is not valid now; "" if it is, and without one.
func OutOfDates(c Files) func() string {
	if c.Cert == "" {
		return func() string { return "" }
	}
	pair := &keyPair{cert: c.Cert, key: c.Key}
	return func() string {
		cert, err := pair.current()
		if err != nil { // ServerCredentials and ClientTLS report it
			return ""
		}
		return invalid(cert.Leaf, time.Now())
	}
}

// WarnOutOfDates warns of certificates that are not valid now: that of this process, and those of the
// authorities that it trusts.
func WarnOutOfDates(log *slog.Logger, c Files) {
	if why := OutOfDates(c)(); why != "" {
		log.Warn("the certificate of this process is not valid: its peers refuse it", "setting", "tls.cert", "file", c.Cert, "reason", why)
	}
	if c.CA == "" {
		return
	}
	data, err := os.ReadFile(c.CA)
	if err != nil { // loadCA reports it
		return
	}
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return
		}
		authority, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			continue
		}
		if why := invalid(authority, time.Now()); why != "" {
			log.Warn("the certificate of an authority is not valid: certificates that it signed are refused", "setting", "tls.ca", "file", c.CA, "authority", authority.Subject, "reason", why)
		}
	}
}
