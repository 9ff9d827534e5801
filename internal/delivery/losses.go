package delivery

import (
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// losses counts requests that were lost in a row with the same code. A connection breaks
// with Unavailable or Cancelled, however often. A request that is lost maxSameLosses times
// in a row with another code would be lost for ever: the credentials have expired, or the
// response is longer than a message may be.
type losses struct {
	code status.Code
	n    int
}

// add counts one more, and reports whether it was one too many.
func (l *losses) add(err error) bool {
	switch code := status.CodeOf(err); code {
	case status.Unavailable, status.Cancelled:
		*l = losses{}
	case l.code:
		l.n++
	default:
		*l = losses{code, 1}
	}
	return l.n >= maxSameLosses
}

// briefs counts connections in a row that were lost soon, and had carried nothing. One or two are a
// network that comes back; more, for briefTimeouts peer timeouts, are a peer that is not reached although it answers.
type briefs struct {
	n     int
	since time.Time // when the first of them was lost
}

func (b *briefs) add(now time.Time) {
	if b.n++; b.n == 1 {
		b.since = now
	}
}

// last reports whether they have lasted too long.
func (b *briefs) last(now time.Time, peerTimeout time.Duration) bool {
	return b.n >= maxSameLosses && now.Sub(b.since) >= briefTimeouts*peerTimeout
}

func (b *briefs) err(m *requests) error {
	return status.Errorf(status.Unavailable, "%s answers, and for %v each connection to it was lost before it carried a response%s",
		m.peer, briefTimeouts*m.peerTimeout, becauseOf(m.why))
}

// endless is the error of a request that was lost too often.
func endless(peer, what string, err error) *status.Error {
	e := status.From(err)
	return status.Errorf(e.Code(), "%s: %s was lost %d times in a row: %s", peer, what, maxSameLosses, e.Message())
}
