package grpctransport

import (
	"context"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/internal/identity"
)

// refusal is why a server does not serve a connection.
type refusal struct {
	kind   refusalKind
	reason string // for the log
	answer []byte // to the client; nil for none
}

// refusalKind distinguishes refusals: the log has each kind once a minute for each address.
type refusalKind uint8

const (
	refusedNot           refusalKind = iota // the client has ended the connection: not logged
	refusedPlain                            // without TLS, to a port with TLS
	refusedTLS                              // with TLS, to a port without
	refusedNoCertificate                    // without a certificate that is required
	refusedCertificate                      // with a certificate that is not accepted
	refusedByClient                         // the client does not accept the server
	refusedHTTP                             // an HTTP/1 client
	refusedVerbs                            // a queue pair over TCP
	refusedBytes                            // a request, since others take all that they may
	refusedLate                             // a request that does not come whole
	refusedSize                             // a request that takes too much when it is parsed
	refusedUnread                           // responses that the client does not read
	refusedOther                            // none of these, for instance a port scanner
)

// refusalLog logs refused connections. A client that tries again every second is logged once
// a minute: as a warning at first, and as INFO as long as it goes on. At most maxRefusalLines are logged in a minute; the first refusal after it also logs
// how many the log has left out.
type refusalLog struct {
	log *slog.Logger

	mu     sync.Mutex // guards what follows
	logged map[refusalKey]*refusalCount
	since  time.Time // begin of the minute of the last line
	lines  int       // in this minute
	rest   int       // refusals in this minute that have no line and no refusalCount
}

// refusalKey is what a line of the log stands for.
type refusalKey struct {
	host string
	kind refusalKind
}

type refusalCount struct {
	at     time.Time // of the last line
	silent int       // refusals since
}

func newRefusalLog(log *slog.Logger) *refusalLog {
	return &refusalLog{log: log, logged: make(map[refusalKey]*refusalCount)}
}

// add logs a refusal, unless one of this kind and host was logged within the last minute.
func (l *refusalLog) add(from net.Addr, r refusal) {
	if r.kind == refusedNot {
		return
	}
	silent, rest, again, ok := l.count(refusalKey{identity.AddressOf(from), r.kind}, time.Now())
	if rest > 0 {
		l.log.Warn("refused more connections than the log names; limit which hosts reach this port", "not_logged", rest)
	}
	if !ok {
		return
	}
	text := "refusing a connection"
	switch r.kind {
	case refusedBytes, refusedLate, refusedSize:
		text = "refusing a request"
	case refusedUnread:
		text = "ending a connection"
	}
	level, args := slog.LevelWarn, []any{"address", from.String(), "reason", r.reason}
	if again || r.kind == refusedOther {
		level = slog.LevelInfo // logged before, or nothing that an operator could set right
	}
	if silent > 0 {
		args = append(args, "not_logged", silent)
	}
	l.log.Log(context.Background(), level, text, args...)
}

// count counts a refusal. ok reports whether to log it, with the number of those of its address that
// were not logged before; again says that the address was logged within the last two minutes. rest is
// the number of others that the last minute has left out.
func (l *refusalLog) count(of refusalKey, now time.Time) (silent, rest int, again, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= refusalPause {
		l.since, l.lines, l.rest, rest = now, 0, 0, l.rest
	}
	c := l.logged[of]
	if c != nil && now.Sub(c.at) < refusalPause {
		c.silent++
		return 0, rest, false, false
	}
	if c == nil && len(l.logged) >= maxRefusals {
		l.forgetLocked(now)
	}
	if l.lines >= maxRefusalLines || c == nil && len(l.logged) >= maxRefusals {
		l.rest++
		return 0, rest, false, false
	}
	if c == nil {
		c = new(refusalCount)
		l.logged[of] = c
	}
	l.lines++
	silent, again = c.silent, c.silent > 0 || now.Sub(c.at) < 2*refusalPause
	*c = refusalCount{at: now}
	return silent, rest, again, true
}

func (l *refusalLog) forgetLocked(now time.Time) {
	for of, c := range l.logged {
		if now.Sub(c.at) >= refusalPause {
			delete(l.logged, of)
		}
	}
}
