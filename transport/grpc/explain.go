package grpctransport

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"google.golang.org/grpc/credentials"

	"github.com/tryst-rdma/tryst/transport"
)

// A client that connects with the wrong credentials, or to a wrong port, gets errors of TLS or
// of HTTP/2 that do not say so ("EOF", "frame too large"). This file turns what the server has
// sent before its first HTTP/2 frame into a reason; docs/tls.md lists the reasons.

// explainedCredentials are the credentials of a client whose errors give the reason.
type explainedCredentials struct {
	credentials.TransportCredentials
	live    *live    // of all connections to the address
	silence *silence // of those of one grpc.ClientConn
	answers *answers // of the same; nil without a limit
}

// ClientHandshake implements credentials.TransportCredentials.
func (e explainedCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	conn, auth, err := e.TransportCredentials.ClientHandshake(ctx, withoutZone(authority), raw)
	at := raw.RemoteAddr().String()
	if err != nil {
		switch {
		case ctx.Err() == nil:
			err = explainHandshake(at, e.live.served.Load(), err)
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			err = saidNothing(at)
		}
		e.live.failed(err)
		return conn, auth, err
	}
	return &firstFrameConn{Conn: conn, address: at, tls: !isPlain(e), failed: make(chan struct{}), live: e.live, silence: e.silence, answers: e.answers.connect()}, auth, nil
}

// saidNothing is the error of a connection that was accepted and brought no byte until connectMax.
func saidNothing(address string) error {
	return fmt.Errorf("%s accepted the connection and said nothing for %v: the server is stopped (SIGSTOP, a debugger), busy, or behind a relay that has lost it", address, connectMax)
}

// withoutZone returns an authority without the zone of its address. A zone means something on this
// host alone, so no certificate has it (RFC 6874, section 4). gRPC escapes the % before it.
func withoutZone(authority string) string {
	a, err := netip.ParseAddrPort(strings.Replace(authority, "%25", "%", 1))
	if err != nil || a.Addr().Zone() == "" {
		return authority
	}
	return netip.AddrPortFrom(a.Addr().WithZone(""), a.Port()).String()
}

// Clone implements credentials.TransportCredentials.
func (e explainedCredentials) Clone() credentials.TransportCredentials {
	return explainedCredentials{e.TransportCredentials.Clone(), e.live, e.silence, e.answers}
}

// isPlain reports whether credentials use no TLS.
func isPlain(c credentials.TransportCredentials) bool {
	return c.Info().SecurityProtocol == "insecure"
}

// explainHandshake returns the error of a TLS handshake at the client with its reason. served
// reports that a server has answered at the address before.
func explainHandshake(address string, served bool, err error) error {
	if record, ok := errors.AsType[tls.RecordHeaderError](err); ok {
		switch h := record.RecordHeader; {
		case isSettings(h[:]):
			return fmt.Errorf("%s is a gRPC server without TLS, and this process connects with TLS: set tls.cert and tls.key there, or no tls settings here", address)
		case bytes.HasPrefix(h[:], []byte("HTTP/")):
			return fmt.Errorf("%s is an HTTP/1 server without TLS, not a Tryst server: check the port", address)
		default:
			return fmt.Errorf("%s does not speak TLS, and this process connects with TLS: it sent %q", address, h)
		}
	}
	if cert, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return explainCertificate(address, cert)
	}
	if alert, ok := alertOf(err); ok {
		return explainAlert(address, alert, err)
	}
	switch {
	case strings.Contains(err.Error(), missingALPN):
		return noHTTP2(address)
	case isEnd(err) && served:
		return fmt.Errorf("%s has gone or is restarting: it closed the connection during the TLS handshake; if it stays so, see its log (%w)", address, err)
	case isEnd(err):
		return fmt.Errorf("%s closed the connection during the TLS handshake: it speaks no TLS, is stopping, or refuses this connection (its log says why) (%w)", address, err)
	}
	return fmt.Errorf("the TLS handshake with %s failed: %w", address, err)
}

// missingALPN is in the error of gRPC when TLS has not agreed on HTTP/2.
const missingALPN = "missing selected ALPN property"

func noHTTP2(address string) error {
	return fmt.Errorf("%s is a TLS server that does not offer HTTP/2 (ALPN), such as a web server, not a Tryst server: check the port", address)
}

// explainCertificate explains why this client does not accept the server's certificate.
func explainCertificate(address string, err *tls.CertificateVerificationError) error {
	name := certificateName(err.UnverifiedCertificates)
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err.Err); ok {
		return fmt.Errorf("the certificate of %s (%s) is signed by no authority that this process trusts: set tls.ca to the authority that signed it (%w)", address, name, err.Err)
	}
	if _, ok := errors.AsType[x509.HostnameError](err.Err); ok {
		return fmt.Errorf("the certificate of %s (%s) is for another name: set tls.server-name to a name that it is for (%w)", address, name, err.Err)
	}
	return fmt.Errorf("the certificate of %s (%s) is not valid: %w", address, name, err.Err)
}

// certificateName describes a certificate chain by its first certificate.
func certificateName(chain []*x509.Certificate) string {
	if len(chain) == 0 {
		return "none"
	}
	return fmt.Sprintf("%.200q, issued by %.200q", chain[0].Subject, chain[0].Issuer)
}

// alertOf returns the text of the TLS alert by which the other side has ended the connection.
// The type of an alert is not exported.
func alertOf(err error) (text string, ok bool) {
	op, ok := errors.AsType[*net.OpError](err)
	if !ok || op.Op != "remote error" {
		return "", false
	}
	return strings.TrimPrefix(op.Err.Error(), "tls: "), true
}

// explainAlert explains an alert of the server.
func explainAlert(address, alert string, err error) error {
	switch alert {
	case "certificate required":
		return fmt.Errorf("%s requires a certificate of its clients, and this process has none: set tls.cert and tls.key", address)
	case "unknown certificate authority":
		return fmt.Errorf("%s does not trust the certificate of this process: tls.cert must be signed by an authority in the tls.ca of the server", address)
	case "expired certificate":
		return fmt.Errorf("%s refuses the certificate of this process, since it has expired or is not valid yet: renew tls.cert", address)
	case "bad certificate", "unsupported certificate", "revoked certificate", "unknown certificate", "access denied":
		return fmt.Errorf("%s refuses the certificate of this process, or its absence (%w): see the log of the server, and check tls.cert", address, err)
	case "no application protocol":
		return noHTTP2(address)
	}
	return fmt.Errorf("%s ended the TLS handshake: %w", address, err)
}

// isEnd reports whether the other side has closed the connection.
func isEnd(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isSettings reports whether b begins as the first frame of an HTTP/2 server: the length in
// three bytes, then the type SETTINGS (RFC 9113, 3.4).
func isSettings(b []byte) bool { return len(b) > 3 && b[0] == 0 && b[3] == 4 }

// isTLS reports whether b begins as a TLS record: a handshake or an alert, then the version.
func isTLS(b []byte) bool {
	return len(b) > 1 && (b[0] == recordHandshake || b[0] == recordAlert) && b[1] == 3
}

// Types of TLS records (RFC 8446, 5.1).
const (
	recordAlert     = 21
	recordHandshake = 22
)

// firstFrameConn is a client's connection. Until the server's first frame has come, its errors
// give the reason.
type firstFrameConn struct {
	net.Conn
	address string
	tls     bool

	framed atomic.Bool   // the first frame has come
	failed chan struct{} // closed when the connection has failed before that, after why is set
	why    error

	live            *live
	counted, closed bool // guarded by live.mu

	silence *silence
	answers *answerConn // nil without a limit
	traffic
}

// Close implements net.Conn.
func (c *firstFrameConn) Close() error {
	c.silence.ended(c)
	c.live.ended(c)
	c.answers.close()
	return c.Conn.Close()
}

// Read implements net.Conn. One goroutine of gRPC reads.
func (c *firstFrameConn) Read(b []byte) (int, error) {
	if n := c.answers.readEnding(b); n > 0 {
		return n, nil
	}
	n, err := c.Conn.Read(b[:c.answers.limit(len(b))])
	switch {
	case c.framed.Load():
		if n > 0 {
			c.answers.read(b[:n])
			c.heard(time.Now())
		}
		if why := c.traffic.why.Load(); err != nil && why != nil {
			err = *why
		}
		return n, err
	case n > 0 && b[0] == 0: // no frame of a server begins with another byte
		c.opened = time.Now()
		c.framed.Store(true)
		c.heard(c.opened)
		c.silence.opened(c)
		c.live.opened(c)
		c.answers.read(b[:n])
		return n, err
	case n > 0:
		err = c.explainBytes(b[:n])
	case err != nil:
		err = c.explainEnd(err)
	default:
		return 0, nil
	}
	if c.why == nil {
		c.why = err
		c.live.failed(err)
		close(c.failed)
	}
	return 0, err
}

// heard notes that something has come.
func (c *firstFrameConn) heard(now time.Time) {
	c.read.Store(int64(now.Sub(c.opened)))
	c.live.heard.Store(now.UnixNano())
}

// Write implements net.Conn. When the server has closed the connection, a write may fail
// before the reason is read.
func (c *firstFrameConn) Write(b []byte) (int, error) {
	framed := c.framed.Load()
	if framed {
		c.wrote.Store(int64(time.Since(c.opened)))
		c.writing.Add(1)
	}
	c.answers.wrote(b)
	n, err := c.Conn.Write(b)
	if framed {
		c.writing.Add(-1)
	}
	if err == nil || c.framed.Load() {
		return n, err
	}
	wait := time.NewTimer(reasonWait)
	defer wait.Stop()
	select {
	case <-c.failed:
		return n, c.why
	case <-wait.C:
		return n, err
	}
}

// explainBytes explains bytes that are no frame.
func (c *firstFrameConn) explainBytes(b []byte) error {
	const speaksTLS = "%s speaks TLS, and this process connects without TLS: set tls.ca, and tls.cert and tls.key if the server requires certificates of its clients"
	if isTLS(b) {
		return fmt.Errorf(speaksTLS, c.address)
	}
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	if !bytes.HasPrefix(b, []byte("HTTP/")) {
		return fmt.Errorf("%s is no gRPC server: it began with %.64q; check the port", c.address, line)
	}
	for _, word := range []string{"TLS", "HTTPS", "SSL"} { // web servers explain it in the text
		if bytes.Contains(rest, []byte(word)) {
			return fmt.Errorf(speaksTLS, c.address)
		}
	}
	if _, answer, _ := bytes.Cut(line, []byte(" ")); transport.IsGatewayStatus(string(answer)) {
		return fmt.Errorf("a gateway at %s answered with the HTTP status %.64q, not a gRPC server: the server behind it is down or busy, or the gateway does not pass HTTP/2 on to it", c.address, answer)
	}
	return fmt.Errorf("%s is an HTTP/1 server, not a Tryst server (it answered %.64q): check the port", c.address, line)
}

// explainEnd explains an error before the first frame.
func (c *firstFrameConn) explainEnd(err error) error {
	if alert, ok := alertOf(err); ok {
		return explainAlert(c.address, alert, err)
	}
	switch {
	case errors.Is(err, net.ErrClosed): // by gRPC, since its time is over
		return saidNothing(c.address)
	case !isEnd(err):
		return err
	case c.live.served.Load():
		return fmt.Errorf("%s has gone or is restarting: it closed the connection without an answer; if it stays so, see its log (%w)", c.address, err)
	case c.tls:
		return fmt.Errorf("%s closed the connection after the TLS handshake: it is no gRPC server, is stopping, or refuses this connection (its log says why) (%w)", c.address, err)
	}
	return fmt.Errorf("%s closed the connection without an answer: it requires TLS (tls.ca is not set here), is no gRPC server, is stopping, or refuses this connection (its log says why) (%w)", c.address, err)
}
