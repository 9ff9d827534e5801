package transport

import "github.com/tryst-rdma/tryst/status"

// losses counts the requests that were lost with the same code one after the other. A
// connection breaks with Unavailable, or with Cancelled, however often; a request that
// is lost with another code maxSameLosses times in a row would be lost for ever: the
// credentials have expired, or the answer is longer than a message may be.
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

// endless is the error of a request that was lost too often.
func endless(peer, what string, err error) *status.Error {
	e := status.From(err)
	return status.Errorf(e.Code(), "%s: %s was lost %d times in a row: %s", peer, what, maxSameLosses, e.Message())
}
