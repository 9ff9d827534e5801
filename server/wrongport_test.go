package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/certificates/certtest"
	"github.com/tryst-rdma/tryst/status"
)

// logBuffer collects a log.
type logBuffer struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
}

// Write implements io.Writer.
func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) logger() *slog.Logger { return slog.New(slog.NewTextHandler(b, nil)) }

// has reports whether a line has all texts.
func (b *logBuffer) has(texts ...string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for line := range strings.Lines(b.text.String()) {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			return true
		}
	}
	return false
}

// refusals returns the lines about refused connections.
func (b *logBuffer) refusals() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for line := range strings.Lines(b.text.String()) {
		if strings.Contains(line, `msg="refusing a connection"`) {
			all = append(all, strings.ReplaceAll(line, `\"`, `"`))
		}
	}
	return all
}

// wantRefusal waits for the one line about a refused connection, which has the texts and the
// address of the client.
func (b *logBuffer) wantRefusal(t *testing.T, texts ...string) {
	t.Helper()
	ticks := time.NewTicker(5 * time.Millisecond)
	defer ticks.Stop()
	var lines []string
	for end := time.Now().Add(soon); len(lines) == 0 && time.Now().Before(end); <-ticks.C {
		lines = b.refusals()
	}
	if len(lines) != 1 {
		t.Fatalf("%d lines about refused connections, want 1:\n%s", len(lines), strings.Join(lines, ""))
	}
	for _, text := range append(texts, "address=127.0.0.1:") {
		if !strings.Contains(lines[0], text) {
			t.Errorf("the log does not say %q: %s", text, lines[0])
		}
	}
}

// TestWrongCredentialsInWords: a client and a server whose TLS settings do not match both say
// what is wrong, and which setting to change.
func TestWrongCredentialsInWords(t *testing.T) {
	a, stranger := certtest.New(t), certtest.New(t)
	a.Make("server", certtest.Loopback)
	a.Make("elsewhere", []net.IP{net.IPv4(10, 0, 0, 1)})
	a.Make("client", nil)
	stranger.Make("client", nil)
	foreign := TLS(stranger.Pair("client"))
	foreign.CA = a.Path("ca.pem")
	mutual := func(c *Config) { c.TLS = TLS(a.Pair("server")); c.TLS.RequireClientCert = true }
	for name, c := range map[string]struct {
		server   func(*Config)
		client   TLS
		says     string // of the client
		serverIs string // in the log of the server
	}{
		"plain client, TLS server": {func(c *Config) { c.TLS = TLS(a.Pair("server")) }, TLS{},
			"speaks TLS, and this process connects without TLS: set tls.ca", "a gRPC client without TLS, and this port requires TLS"},
		"TLS client, plain server": {func(*Config) {}, TLS{CA: a.Path("ca.pem")},
			"is a gRPC server without TLS, and this process connects with TLS: set tls.cert and tls.key there", "the client connects with TLS, and this server has none"},
		"no client certificate": {mutual, TLS{CA: a.Path("ca.pem")},
			"requires a certificate of its clients, and this process has none: set tls.cert and tls.key", "the client has no certificate, and tls.require-client-cert is set"},
		"client of a foreign authority": {mutual, foreign,
			"does not trust the certificate of this process: tls.cert must be signed by an authority in the tls.ca of the server", `(""CN=client", issued by "CN=ca"") is signed by no authority in tls.ca`},
		"server of a foreign authority": {func(c *Config) { c.TLS = TLS(a.Pair("server")) }, TLS{CA: stranger.Path("ca.pem")},
			"is signed by no authority that this process trusts: set tls.ca", "the client does not accept the certificate of this server"},
		"server of another name": {func(c *Config) { c.TLS = TLS(a.Pair("elsewhere")) }, TLS{CA: a.Path("ca.pem")},
			"is for another name: set tls.server-name", "the client does not accept the certificate of this server"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logBuffer
			s := start(t, settings(c.server), Options{Logger: log.logger()})
			cl := dial(t, clientConfig(c.client), s.Addr().String())
			for range 2 {
				_, err := cl.Puller().List(t.Context())
				wantError(t, err, status.Unavailable, s.Addr().String()+" ", c.says)
			}
			log.wantRefusal(t, strings.ReplaceAll(c.serverIs, `""`, `"`))
		})
	}
}

// TestExpiredCertificateInWords: both sides say that the certificate of the server has expired.
func TestExpiredCertificateInWords(t *testing.T) {
	a := certtest.New(t)
	a.Lifetime = -time.Minute
	a.Make("server", certtest.Loopback)
	var log logBuffer
	s := start(t, settings(func(c *Config) { c.TLS = TLS(a.Pair("server")) }), Options{Logger: log.logger()})
	err := list(t, clientConfig(TLS{CA: a.Path("ca.pem")}), s.Addr().String())
	wantError(t, err, status.Unavailable, s.Addr().String(), "is not valid: x509: certificate has expired")
	log.wantRefusal(t, "the client does not accept the certificate of this server: it has expired, on ")
}

// TestExpiredCertificatesAreWarnedAbout at the start, of this process and of an authority, by a server and
// by a client; one that is valid is not.
func TestExpiredCertificatesAreWarnedAbout(t *testing.T) {
	a := certtest.New(t)
	a.Make("good", certtest.Loopback)
	a.Lifetime = -time.Minute
	a.Make("bad", certtest.Loopback)
	for name, want := range map[string]bool{"good": false, "bad": true} {
		var log logBuffer
		start(t, settings(func(c *Config) { c.TLS = TLS(a.Pair(name)) }), Options{Logger: log.logger()})
		if log.has("level=WARN", "the certificate of this process is not valid", "it has expired") != want {
			t.Errorf("a server with a %s certificate: warned %v", name, !want)
		}
		var clients logBuffer
		c := TLS(a.Pair(name))
		c.CA = c.Cert // as an authority
		cl, err := Dial(t.Context(), clientConfig(c), "127.0.0.1:1", Options{Logger: clients.logger()})
		if err != nil {
			t.Fatal(err)
		}
		_ = cl.Close(t.Context())
		if clients.has("level=WARN", "the certificate of an authority is not valid", "it has expired") != want || clients.has("the certificate of this process is not valid") != want {
			t.Errorf("a client with a %s certificate: warned %v", name, !want)
		}
	}
}

// TestHTTPServerInWords: a client that reaches a web server says so.
func TestHTTPServerInWords(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secure.TLS = &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	defer secure.Close()
	http2 := httptest.NewUnstartedServer(http.NotFoundHandler())
	http2.Config.Protocols = new(http.Protocols)
	http2.Config.Protocols.SetUnencryptedHTTP2(true)
	http2.Start()
	defer http2.Close()
	authority := certtest.New(t)
	authority.Write("web.pem", "CERTIFICATE", secure.Certificate().Raw)
	trust := TLS{CA: authority.Path("web.pem")}
	for name, c := range map[string]struct {
		server *httptest.Server
		client TLS
		code   status.Code
		says   string
	}{
		"HTTP, plain client":   {plain, TLS{}, status.Unavailable, "is an HTTP/1 server, not a Tryst server"},
		"HTTP, TLS client":     {plain, trust, status.Unavailable, "is an HTTP/1 server without TLS, not a Tryst server: check the port"},
		"HTTPS, plain client":  {secure, TLS{}, status.Unavailable, "closed the connection without an answer: it requires TLS (tls.ca is not set here)"},
		"HTTP/2, plain client": {http2, TLS{}, status.Unimplemented, "it is not a Tryst server"},
		"HTTPS, TLS client":    {secure, trust, status.Unavailable, "is a TLS server that does not offer HTTP/2"},
	} {
		t.Run(name, func(t *testing.T) {
			at := c.server.Listener.Addr().String()
			err := list(t, clientConfig(c.client), at)
			wantError(t, err, c.code, c.says)
			if c.server != http2 { // its own answer, with which gRPC gives no address
				wantError(t, err, c.code, at+" ")
			}
		})
	}
}

// TestOtherServersInWords: servers of other protocols, which answer with a text, with TLS or not
// at all.
func TestOtherServersInWords(t *testing.T) {
	for name, c := range map[string]struct{ answer, says string }{
		"a banner":       {"SSH-2.0-OpenSSH_9.6\r\n", `is no gRPC server: it began with "SSH-2.0-OpenSSH_9.6"`},
		"a TLS alert":    {"\x15\x03\x01\x00\x02\x02\x46", "speaks TLS, and this process connects without TLS"},
		"nginx with TLS": {"HTTP/1.1 400 Bad Request\r\n\r\nThe plain HTTP request was sent to HTTPS port", "speaks TLS, and this process connects without TLS"},
		"a gateway":      {"HTTP/1.1 502 Bad Gateway\r\nServer: nginx\r\n\r\n", `answered with the HTTP status "502 Bad Gateway", not a gRPC server`},
		"nothing":        {"", "closed the connection without an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var serving sync.WaitGroup
			serving.Go(func() {
				for {
					conn, err := l.Accept()
					if err != nil {
						return
					}
					serving.Go(func() {
						defer conn.Close()
						_, _ = conn.Read(make([]byte, 64<<10))
						_, _ = io.WriteString(conn, c.answer)
					})
				}
			})
			at := l.Addr().String()
			wantError(t, list(t, clientConfig(TLS{}), at), status.Unavailable, at+" ", c.says)
			l.Close()
			serving.Wait()
		})
	}
}

// TestHTTPClientInWords: a client of HTTP/1 gets an answer that it understands, and the log has
// its address.
func TestHTTPClientInWords(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	get := func(t *testing.T, url string) string {
		t.Helper()
		roots := x509.NewCertPool()
		pem, err := os.ReadFile(a.Path("ca.pem"))
		if err != nil || !roots.AppendCertsFromPEM(pem) {
			t.Fatal(err)
		}
		client := http.Client{Timeout: soon, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}}
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.Do(req)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.Status + " " + string(body)
	}
	for name, c := range map[string]struct {
		server         func(*Config)
		scheme         string
		says, serverIs string
	}{
		"HTTP, plain server": {func(*Config) {}, "http", "400 Bad Request This port of a Tryst server serves gRPC, not HTTP/1.", `an HTTP/1 client ("GET /metrics HTTP/1.1"), but this port serves gRPC`},
		"HTTP, TLS server":   {func(c *Config) { c.TLS = TLS(a.Pair("server")) }, "http", "400 Bad Request This port of a Tryst server serves gRPC over TLS, not HTTP/1.", "an HTTP/1 client without TLS"},
		"HTTPS, TLS server":  {func(c *Config) { c.TLS = TLS(a.Pair("server")) }, "https", "", "a TLS client that does not speak HTTP/2"},
	} {
		t.Run(name, func(t *testing.T) {
			var log logBuffer
			s := start(t, settings(c.server), Options{Logger: log.logger()})
			for range 3 {
				if got := get(t, c.scheme+"://"+s.Addr().String()+"/metrics"); !strings.HasPrefix(got, c.says) {
					t.Errorf("the client got %q, want %q", got, c.says)
				}
			}
			log.wantRefusal(t, c.serverIs)
		})
	}
}

// TestProbeOfAPortIsNotLogged: a load balancer that connects and closes is no client.
func TestProbeOfAPortIsNotLogged(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	for name, tlsFiles := range map[string]TLS{"plain": {}, "TLS": TLS(a.Pair("server"))} {
		var log logBuffer
		s := start(t, settings(func(c *Config) { c.TLS = tlsFiles }), Options{Logger: log.logger()})
		for range 3 {
			conn, err := net.Dial("tcp", s.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			conn.Close()
		}
		if err := s.Close(context.Background()); err != nil { // waits for the handshakes
			t.Error(err)
		}
		if lines := log.refusals(); len(lines) != 0 {
			t.Errorf("%s: %s", name, strings.Join(lines, ""))
		}
	}
}

// TestTLSFileIsNamedWithItsSetting: for a server and for a client.
func TestTLSFileIsNamedWithItsSetting(t *testing.T) {
	a := certtest.New(t)
	a.Make("server", certtest.Loopback)
	a.Write("empty.pem", "NOTHING", nil)
	a.Write("encrypted.key", "ENCRYPTED PRIVATE KEY", []byte("x"))
	old := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: []byte("x"), Headers: map[string]string{
		"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-128-CBC,00112233445566778899AABBCCDDEEFF",
	}})
	if err := os.WriteFile(a.Path("old.key"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(cert, key, ca string) TLS {
		return TLS{Cert: a.Path(cert), Key: a.Path(key), CA: a.Path(ca)}
	}
	for name, c := range map[string]struct {
		tls   TLS
		texts []string
	}{
		"no certificate file":       {at("no.pem", "server.key", "ca.pem"), []string{"InvalidArgument: tls.cert: ", "no.pem: no such file"}},
		"no key file":               {at("server.pem", "no.key", "ca.pem"), []string{"InvalidArgument: tls.key: ", "no.key: no such file"}},
		"no file of authorities":    {at("server.pem", "server.key", "no.pem"), []string{"InvalidArgument: tls.ca: ", "no.pem: no such file"}},
		"no certificate in it":      {at("server.key", "server.key", "ca.pem"), []string{"InvalidArgument: tls.cert: ", "server.key holds no certificate in PEM form"}},
		"no key in it":              {at("server.pem", "server.pem", "ca.pem"), []string{"InvalidArgument: tls.key: ", "server.pem holds no unencrypted private key in PEM form"}},
		"encrypted key":             {at("server.pem", "encrypted.key", "ca.pem"), []string{"InvalidArgument: tls.key: ", "encrypted.key holds no unencrypted private key"}},
		"encrypted key, old form":   {at("server.pem", "old.key", "ca.pem"), []string{"InvalidArgument: tls.key: ", "old.key holds no unencrypted private key"}},
		"no authority in it":        {at("server.pem", "server.key", "empty.pem"), []string{"InvalidArgument: tls.ca: ", "empty.pem holds no certificate in PEM form"}},
		"key of another":            {at("server.pem", "ca.key", "ca.pem"), []string{"InvalidArgument: tls.cert ", "server.pem, tls.key ", "ca.key: ", "does not match"}},
		"a directory, for instance": {TLS{Cert: a.Dir, Key: a.Path("server.key"), CA: a.Path("ca.pem")}, []string{"InvalidArgument: tls.cert: ", "is a directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Start(t.Context(), settings(func(cfg *Config) { cfg.TLS = c.tls }), Options{})
			wantError(t, err, status.InvalidArgument, c.texts...)
			_, err = Dial(t.Context(), clientConfig(c.tls), "127.0.0.1:1", Options{})
			wantError(t, err, status.InvalidArgument, c.texts...)
		})
	}
}
