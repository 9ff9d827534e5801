package grpctransport

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/credentials"
)

// A server looks at the first bytes of a connection. A client that cannot be served, because
// it uses the wrong credentials or another protocol, gets an answer that it understands, and
// the log says what it was.
//
//	first bytes of the client        port without TLS             port with TLS
//	HTTP/2 preface                   served                       TLS alert
//	HTTP/1 request                   HTTP/1 status 400            HTTP/1 status 400
//	TLS handshake                    gRPC's SETTINGS, then end    served, or TLS alert
//	TRYSTQP1, ALPN tryst-verbs       to the Acceptor (SharedPort) to the Acceptor

// handshake authenticates a new connection, which gRPC has as gate.
func (t trackedCredentials) handshake(gate net.Conn) (net.Conn, credentials.AuthInfo, error) {
	raw := bare(gate)
	if isPlain(t) {
		return t.plainHandshake(gate, raw)
	}
	held := &heldConn{Conn: raw}
	conn, auth, err := t.TransportCredentials.ServerHandshake(held)
	held.released = true
	if c, ok := conn.(*tls.Conn); ok && err == nil && c.ConnectionState().NegotiatedProtocol == VerbsProtocol {
		return nil, nil, t.handOver(gate, conn, nil)
	}
	if err == nil {
		return conn, auth, nil
	}
	refused := refusalOf(err)
	if refused.kind == refusedByClient && t.quotas.outOfDates != nil {
		if why := t.quotas.outOfDates(); why != "" {
			refused.reason = "the client does not accept the certificate of this server: " + why + "; renew tls.cert"
		}
	}
	if refused.kind != refusedNot { // otherwise the client has gone, or its time is over
		t.quotas.refusals.add(raw.RemoteAddr(), refused)
		refuse(raw, refused.answer)
	}
	return raw, nil, err
}

// handOver gives a connection to the Acceptor of queue pairs. Its error ends the handshake.
func (t trackedCredentials) handOver(gate, conn net.Conn, first []byte) error {
	err := t.shared.hand(gate, conn, first)
	if !errors.Is(err, credentials.ErrConnDispatched) {
		t.quotas.refusals.add(conn.RemoteAddr(), refusal{kind: refusedVerbs, reason: "a queue pair over TCP: " + err.Error()})
	}
	return err
}

// plainHandshake is handshake without TLS.
func (t trackedCredentials) plainHandshake(gate, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	first := make([]byte, greetingMax)
	n, err := io.ReadAtLeast(raw, first, greetingMin)
	if err != nil {
		return raw, nil, err // also of a probe of the port, which sends nothing
	}
	first = first[:n]
	switch {
	case isPreface(first):
	case bytes.HasPrefix(first, []byte(verbsMagic)):
		return nil, nil, t.handOver(gate, raw, first)
	case isTLS(first):
		// gRPC answers with its SETTINGS, by which the client sees that this is no TLS.
		t.quotas.refusals.add(raw.RemoteAddr(), refusal{kind: refusedTLS,
			reason: "the client connects with TLS, and this server has none: set tls.cert and tls.key here, or no tls settings there"})
	case isHTTP1(first):
		line, _, _ := bytes.Cut(first, []byte("\r\n"))
		refused := refusal{kind: refusedHTTP, answer: httpAnswer("gRPC"),
			reason: fmt.Sprintf("an HTTP/1 client (%.64q), but this port serves gRPC; metrics-address sets the port for metrics", line)}
		t.quotas.refusals.add(raw.RemoteAddr(), refused)
		refuse(raw, refused.answer)
		return raw, nil, errors.New(refused.reason)
	default:
		t.quotas.refusals.add(raw.RemoteAddr(), refusal{kind: refusedOther,
			reason: fmt.Sprintf("no gRPC client: it began with %.64q", first)})
	}
	return t.TransportCredentials.ServerHandshake(&prefixedConn{Conn: raw, prefix: first})
}

// refusalOf explains a failed TLS handshake at the server.
func refusalOf(err error) refusal {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		switch h := record.RecordHeader[:]; {
		case isPreface(h):
			return refusal{refusedPlain, "a gRPC client without TLS, and this port requires TLS: set tls.ca at the client", tlsAlert()}
		case isHTTP1(h):
			return refusal{refusedHTTP, "an HTTP/1 client without TLS, but this port serves gRPC over TLS; metrics-address sets the port for metrics", httpAnswer("gRPC over TLS")}
		default:
			return refusal{refusedOther, fmt.Sprintf("a client without TLS: it began with %q", h), nil}
		}
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		name, why := certificateName(cert.UnverifiedCertificates), cert.Err
		if _, ok := errors.AsType[x509.UnknownAuthorityError](why); ok {
			return refusal{refusedCertificate, fmt.Sprintf("the certificate of the client (%s) is signed by no authority in tls.ca", name), nil}
		}
		return refusal{refusedCertificate, fmt.Sprintf("the certificate of the client (%s) is not valid: %v", name, why), nil}
	}
	if alert, ok := alertOf(err); ok {
		return refusal{refusedByClient, refusedServer(alert), nil}
	}
	switch text := err.Error(); {
	case isEnd(err), errors.Is(err, os.ErrDeadlineExceeded):
		return refusal{}
	case strings.Contains(text, "didn't provide a certificate"): // crypto/tls has no type for it
		return refusal{refusedNoCertificate, "the client has no certificate, and tls.require-client-cert is set: set tls.cert and tls.key at the client", nil}
	case strings.Contains(text, missingALPN), strings.Contains(text, "unsupported application protocols"):
		return refusal{refusedHTTP, "a TLS client that does not speak HTTP/2, such as an HTTP/1 client; this port serves gRPC", nil}
	default:
		return refusal{refusedOther, "the TLS handshake failed: " + text, nil}
	}
}

// refusedServer explains an alert by which a client has refused the server.
func refusedServer(alert string) string {
	switch alert {
	case "unknown certificate authority", "bad certificate", "unknown certificate":
		return fmt.Sprintf("the client does not accept the certificate of this server (%s): its tls.ca must have the authority that signed tls.cert, and the certificate must be for the name that it dials", alert)
	case "expired certificate":
		return "the client does not accept the certificate of this server, since it has expired or is not valid yet: renew tls.cert"
	}
	return "the client ended the TLS handshake: " + alert
}

// isPreface reports whether b begins as the preface of an HTTP/2 client (RFC 9113, 3.4).
func isPreface(b []byte) bool { return bytes.HasPrefix(b, []byte("PRI *")) }

// isHTTP1 reports whether b, at least the length of a TLS record header, begins as a request
// of HTTP/1.
func isHTTP1(b []byte) bool {
	for _, method := range []string{"GET ", "HEAD ", "POST ", "PUT ", "DELETE ", "CONNECT ", "OPTIONS ", "TRACE ", "PATCH "} {
		n := min(len(method), len(b))
		if string(b[:n]) == method[:n] {
			return true
		}
	}
	return false
}

// tlsAlert returns the record by which TLS servers end a connection that is none of TLS:
// fatal, protocol_version.
func tlsAlert() []byte { return []byte{recordAlert, 3, 1, 0, 2, 2, 70} }

// httpAnswer returns a response of HTTP/1 that says what the port serves.
func httpAnswer(protocol string) []byte {
	body := "This port of a Tryst server serves " + protocol + ", not HTTP/1. The setting metrics-address has the port for metrics.\n"
	return fmt.Appendf(nil, "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// refuse sends an answer and lets the client read it, or the TLS alert before it: a close with
// unread bytes would reset the connection. The caller closes the connection.
func refuse(raw net.Conn, answer []byte) {
	_ = raw.SetDeadline(time.Now().Add(refusalWait)) // errors mean that the client has gone
	if len(answer) > 0 {
		_, _ = raw.Write(answer)
	}
	if c, ok := raw.(interface{ CloseWrite() error }); ok {
		_ = c.CloseWrite()
		_, _ = io.CopyN(io.Discard, raw, refusalBytes)
	}
}

// heldConn keeps a connection open when the handshake closes it, until released.
type heldConn struct {
	net.Conn
	released bool // set before others use the connection
}

// Close implements net.Conn.
func (c *heldConn) Close() error {
	if !c.released {
		return nil
	}
	return c.Conn.Close()
}

// prefixedConn is a connection whose first bytes have been read.
type prefixedConn struct {
	net.Conn
	prefix []byte
}

// Read implements net.Conn.
func (c *prefixedConn) Read(b []byte) (int, error) {
	if len(c.prefix) == 0 {
		return c.Conn.Read(b)
	}
	n := copy(b, c.prefix)
	if c.prefix = c.prefix[n:]; len(c.prefix) == 0 {
		c.prefix = nil
	}
	return n, nil
}
