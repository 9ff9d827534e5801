package lograte

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Lines lets a number of log lines through in each Pause.
type Lines struct {
	Most int    // lines
	Of   *Lines // counts the lines of several Lines together; nil for none

	mu     sync.Mutex // guards what follows; before that of Of
	since  time.Time  // begin of the pause
	n      int        // lines since
	silent int        // lines left out since the last one
}

// now reports whether to log, and how many lines were left out before.
func (l *Lines) now(now time.Time) (silent int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.since) >= Pause {
		l.since, l.n = now, 0
	}
	ok = l.n < l.Most
	if ok && l.Of != nil {
		_, ok = l.Of.now(now)
	}
	if !ok {
		l.silent++
		return 0, false
	}
	l.n++
	silent, l.silent = l.silent, 0
	return silent, true
}

// Handler is a slog.Handler that lets lines of level INFO and above through as Lines says. The next line has the number
// of those left out (not_logged), which are at DEBUG.
type Handler struct {
	slog.Handler
	Lines *Lines
}

// Handle implements slog.Handler.
func (h Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo {
		switch silent, ok := h.Lines.now(time.Now()); {
		case !ok && !h.Enabled(ctx, slog.LevelDebug):
			return nil
		case !ok:
			r.Level = slog.LevelDebug
		case silent > 0:
			r.AddAttrs(slog.Int("not_logged", silent))
		}
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return Handler{h.Handler.WithAttrs(attrs), h.Lines}
}

// WithGroup implements slog.Handler.
func (h Handler) WithGroup(name string) slog.Handler {
	return Handler{h.Handler.WithGroup(name), h.Lines}
}
