package grpctransport

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func refusalFrom(i int) net.Addr {
	return &net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i)), Port: 1000 + i%1000}
}

// TestRefusalsAreLoggedOnceAMinute for each kind and address, with the number of the others.
func TestRefusalsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := newRefusalLog(slog.New(slog.NewTextHandler(&text, nil)))
		lines := func(what string, want ...string) {
			t.Helper()
			got := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
			if text.Len() == 0 {
				got = nil
			}
			text.Reset()
			if len(got) != len(want) {
				t.Fatalf("%s: %d lines, want %d: %q", what, len(got), len(want), got)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					t.Errorf("%s: got %s, want %s", what, got[i], want[i])
				}
			}
		}
		for range 5 {
			l.add(refusalFrom(1), refusal{kind: refusedPlain, reason: "plain"})
		}
		l.add(refusalFrom(1), refusal{kind: refusedHTTP, reason: "http"})
		l.add(refusalFrom(2), refusal{kind: refusedPlain, reason: "plain"})
		l.add(refusalFrom(2), refusal{kind: refusedNot, reason: "gone"})
		l.add(refusalFrom(2), refusal{kind: refusedOther, reason: "scanner"})
		lines("at once", "level=WARN msg=\"refusing a connection\" address=10.0.0.1:1001 reason=plain", "reason=http", "address=10.0.0.2:1002 reason=plain", "level=INFO")
		<-time.After(59 * time.Second)
		l.add(refusalFrom(1), refusal{kind: refusedPlain, reason: "plain"})
		lines("within the minute")
		<-time.After(time.Second)
		for range 2 {
			l.add(refusalFrom(1), refusal{kind: refusedPlain, reason: "plain"})
		}
		lines("after a minute", "level=INFO msg=\"refusing a connection\" address=10.0.0.1:1001 reason=plain not_logged=5")
		<-time.After(2 * refusalPause)
		l.add(refusalFrom(2), refusal{kind: refusedPlain, reason: "plain"})
		lines("after a pause", "level=WARN msg=\"refusing a connection\" address=10.0.0.2:1002")
	})
}

// TestRefusalsOfManyAddressesAreBounded: in memory and in lines. The rest is counted in one line.
func TestRefusalsOfManyAddressesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		l := newRefusalLog(slog.New(slog.NewTextHandler(&text, nil)))
		const flood = 2 * maxRefusals
		for minute := range 3 {
			for i := range flood {
				l.add(refusalFrom(i+minute*10000), refusal{kind: refusedPlain, reason: "plain"})
			}
			rest := fmt.Sprintf("level=WARN msg=\"refused more connections than the log names; limit which hosts reach this port\" not_logged=%d", flood-maxRefusalLines)
			if n := strings.Count(text.String(), rest); n != min(minute, 1) {
				t.Errorf("minute %d: %d lines with the rest of the last minute:\n%s", minute, n, text.String())
			}
			if n := strings.Count(text.String(), "refusing a connection"); n != maxRefusalLines || len(l.logged) > maxRefusals {
				t.Errorf("minute %d: %d lines, want %d; %d records", minute, n, maxRefusalLines, len(l.logged))
			}
			text.Reset()
			<-time.After(refusalPause)
		}
	})
}

// TestFirstBytesOfAClient: what a server takes them for.
func TestFirstBytesOfAClient(t *testing.T) {
	for text, want := range map[string]string{
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n": "preface", "PRI *": "preface",
		"GET / HTTP/1.1\r\n": "HTTP/1", "GET /": "HTTP/1", "OPTIO": "HTTP/1", "DELETE /x HTTP/1.0": "HTTP/1",
		"\x16\x03\x01\x02\x00\x01": "TLS", "\x15\x03\x03\x00\x02": "TLS",
		"SSH-2.0-x": "", "PROXY TCP4": "", "\x00\x00\x00\x04\x00": "", "get / http": "",
	} {
		b := []byte(text)
		if got := fmt.Sprint(isPreface(b), isHTTP1(b), isTLS(b)); got != fmt.Sprint(want == "preface", want == "HTTP/1", want == "TLS") {
			t.Errorf("%q: preface, HTTP/1, TLS are %s, want %q", text, got, want)
		}
	}
}

// TestClientOfAServerThatClosesIsSentToItsLog: a server that has reached its limit of connections
// closes them without an answer, which looks the same as wrong settings.
func TestClientOfAServerThatClosesIsSentToItsLog(t *testing.T) {
	for what, err := range map[string]error{
		"during the TLS handshake": explainHandshake("h:1", false, io.EOF),
		"after the TLS handshake":  (&firstFrameConn{address: "h:1", tls: true, live: new(live)}).explainEnd(io.EOF),
		"without an answer":        (&firstFrameConn{address: "h:1", live: new(live)}).explainEnd(io.EOF),
	} {
		for _, text := range []string{"h:1 closed the connection " + what, "or refuses this connection (its log says why)"} {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: no %q in %q", what, text, err)
			}
		}
	}
}
