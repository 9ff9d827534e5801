package delivery

import (
	"context"
	"errors"
	"log/slog"

	"github.com/tryst-rdma/tryst/status"
	"github.com/tryst-rdma/tryst/transport"
)

// connChange is a change of the connection to a peer, for the log.
type connChange struct {
	is, was    connState
	generation uint64
	why        error
	// failed is how many receives have ended since the peer is not reached, and before how many
	// of them had at the last change.
	failed, before int
}

// log logs a change of the connection. That a peer is not reached is one fact, however often
// receives look for it: the first that ends by it causes a warning, and the line about the next
// connection counts them. Without receives nothing has failed: only acknowledgements wait.
func (p *peer) log(c connChange) {
	l := p.requester.opts.Logger.With("peer", p.task.String())
	level := slog.LevelInfo
	if p.requester.opts.ConnLogs {
		level = slog.LevelDebug
	}
	log := func(level slog.Level, text string, args ...any) { l.Log(context.Background(), level, text, args...) }
	_, restarted := errors.AsType[*transport.RestartedError](c.why)
	switch {
	case c.is == connUp && c.failed > 0:
		l.Info("peer reached again", "failed_receives", c.failed)
	case c.is == connUp && c.generation > 1:
		log(level, "peer reached again")
	case c.is == connUp:
		l.Debug("peer reached")
	case c.was == connUp && restarted:
		log(level, "the peer has restarted", "reason", c.why)
	case c.was == connUp:
		log(level, "connection to peer lost", "reason", c.why)
	case c.is == connNone && status.CodeOf(c.why) == status.FailedPrecondition:
		// The peer answers, and the settings do not fit: the error of the receives says so.
		l.Debug("receives from the peer end with an error", "reason", c.why)
	case c.is == connNone && c.failed > 0 && c.before == 0:
		l.Warn("the peer is not reached, and receives from it end with an error; check that it runs, and its address", "reason", c.why)
	case c.is == connNone:
		l.Debug("the peer is not reached", "reason", c.why)
	}
}
