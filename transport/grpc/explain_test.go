package grpctransport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/transport"
)

// explained is a reason of a failed connection, with the words of explain.go that make it.
type explained struct {
	err   error
	wrong bool // a user must correct a setting
}

// allExplained returns one error for each message of explain.go.
func allExplained() []explained {
	const at = "10.0.0.1:2222"
	alert := func(s string) error { return &net.OpError{Op: "remote error", Err: errors.New("tls: " + s)} }
	record := func(b string) error {
		e := tls.RecordHeaderError{Msg: "not TLS"}
		copy(e.RecordHeader[:], b)
		return e
	}
	certificate := func(err error) error { return &tls.CertificateVerificationError{Err: err} }
	plain, secure := &firstFrameConn{address: at}, &firstFrameConn{address: at, tls: true}
	return []explained{
		{explainHandshake(at, record("\x00\x00\x12\x04\x00")), true},
		{explainHandshake(at, record("HTTP/")), true},
		{explainHandshake(at, record("SSH-2")), true},
		{explainHandshake(at, certificate(x509.UnknownAuthorityError{})), true},
		{explainHandshake(at, certificate(x509.HostnameError{Certificate: new(x509.Certificate), Host: at})), true},
		{explainHandshake(at, certificate(x509.CertificateInvalidError{Reason: x509.Expired})), true},
		{explainHandshake(at, alert("certificate required")), true},
		{explainHandshake(at, alert("unknown certificate authority")), true},
		{explainHandshake(at, alert("expired certificate")), true},
		{explainHandshake(at, alert("bad certificate")), true},
		{explainHandshake(at, alert("no application protocol")), true},
		{explainHandshake(at, alert("internal error")), false},
		{explainHandshake(at, errors.New(missingALPN)), true},
		{explainHandshake(at, io.EOF), false},
		{explainHandshake(at, os.ErrDeadlineExceeded), false},
		{plain.explainBytes([]byte("\x15\x03\x01")), true},
		{plain.explainBytes([]byte("SSH-2.0-OpenSSH_9.2\r\n")), true},
		{plain.explainBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\nuse HTTPS")), true},
		{plain.explainBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), true},
		{plain.explainEnd(alert("certificate required")), true},
		{plain.explainEnd(io.EOF), false},
		{secure.explainEnd(io.EOF), false},
	}
}

// TestWrongSettingsAreTold apart from errors that may pass, so that a pull does not try again
// when a user must correct something.
func TestWrongSettingsAreTold(t *testing.T) {
	for _, x := range allExplained() {
		if got := transport.WrongSetting(x.err.Error()); got != x.wrong {
			t.Errorf("wrong setting %v, want %v: %v", got, x.wrong, x.err)
		}
	}
	// No message of explain.go may be missing above: each has some text between its verbs.
	source, err := os.ReadFile("explain.go")
	if err != nil {
		t.Fatal(err)
	}
	verb := regexp.MustCompile(`%[.0-9]*[a-z]`)
	found := 0
	for _, m := range regexp.MustCompile(`(?:Errorf\(|speaksTLS = )"([^"]+)"`).FindAllStringSubmatch(string(source), -1) {
		found++
		parts := verb.Split(m[1], -1)
		if !slices.ContainsFunc(allExplained(), func(x explained) bool {
			return !slices.ContainsFunc(parts, func(p string) bool { return !strings.Contains(x.err.Error(), p) })
		}) {
			t.Errorf("no error above has the message %q", m[1])
		}
	}
	if found < 15 {
		t.Errorf("%d messages found in explain.go", found)
	}
}
