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

	"google.golang.org/grpc"
	grpcstatus "google.golang.org/grpc/status"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
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
	plain, secure := &firstFrameConn{address: at, live: new(live)}, &firstFrameConn{address: at, tls: true, live: new(live)}
	reached := &firstFrameConn{address: at, live: new(live)}
	reached.live.served.Store(true)
	return []explained{
		{explainHandshake(at, false, record("\x00\x00\x12\x04\x00")), true},
		{explainHandshake(at, false, record("HTTP/")), true},
		{explainHandshake(at, false, record("SSH-2")), true},
		{explainHandshake(at, false, certificate(x509.UnknownAuthorityError{})), true},
		{explainHandshake(at, false, certificate(x509.HostnameError{Certificate: new(x509.Certificate), Host: at})), true},
		{explainHandshake(at, false, certificate(x509.CertificateInvalidError{Reason: x509.Expired})), true},
		{explainHandshake(at, false, alert("certificate required")), true},
		{explainHandshake(at, false, alert("unknown certificate authority")), true},
		{explainHandshake(at, false, alert("expired certificate")), true},
		{explainHandshake(at, false, alert("bad certificate")), true},
		{explainHandshake(at, false, alert("no application protocol")), true},
		{explainHandshake(at, false, alert("internal error")), false},
		{explainHandshake(at, false, errors.New(missingALPN)), true},
		{explainHandshake(at, false, io.EOF), false},
		{explainHandshake(at, true, io.EOF), false},
		{explainHandshake(at, false, os.ErrDeadlineExceeded), false},
		{plain.explainBytes([]byte("\x15\x03\x01")), true},
		{plain.explainBytes([]byte("SSH-2.0-OpenSSH_9.2\r\n")), true},
		{plain.explainBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\nuse HTTPS")), true},
		{plain.explainBytes([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")), true},
		{plain.explainBytes([]byte("HTTP/1.1 502 Bad Gateway\r\n\r\n")), false},
		{plain.explainBytes([]byte("HTTP/1.1 429 Too Many Requests\r\n\r\n")), false},
		{plain.explainEnd(alert("certificate required")), true},
		{plain.explainEnd(io.EOF), false},
		{secure.explainEnd(io.EOF), false},
		{reached.explainEnd(io.EOF), false},
		{plain.explainEnd(net.ErrClosed), false},
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

// TestPeerThatAnsweredBeforeHasGone: once a server has answered at an address, an error says first
// that it has gone or is restarting, and does not guess at wrong settings.
func TestPeerThatAnsweredBeforeHasGone(t *testing.T) {
	server := new(testCluster).start(t, 0, nodeOptions{listener: listenAgain(t)})
	ch, err := dial(server.address, DialOptions{}, newFramePool(0), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ch.close() }()
	hello := func() error {
		return ch.Invoke(t.Context(), trystgrpc.Peers_Hello_FullMethodName, new(trystpb.HelloRequest), new(trystpb.HelloResponse), grpc.WaitForReady(false))
	}
	if err := hello(); err != nil && !strings.Contains(err.Error(), "name") { // an answer, whatever it is
		t.Fatal(err)
	}
	server.close()
	failsWith := func(words string) {
		t.Helper()
		for {
			err := hello()
			text := transport.PlainText(grpcstatus.Convert(err).Message())
			if strings.HasPrefix(text, server.address+" has gone or is restarting: ") && strings.Contains(text, words) && !strings.Contains(text, "tls.ca") {
				return
			}
			if err == nil || t.Context().Err() != nil || strings.Contains(text, "without an answer") {
				t.Fatalf("no %q: %s", words, text)
			}
			ch.conns[0].ResetConnectBackoff()
		}
	}
	failsWith("connection refused")
	l, err := net.Listen("tcp", server.address)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.Close()
		}
	}()
	failsWith("it closed the connection without an answer")
	l.Close()
	<-done
}
