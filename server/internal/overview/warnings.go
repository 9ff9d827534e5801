package overview

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/status"
)

// Warnings keeps the last lines of a log from WARN on. Lines that repeat the one before, but for its time, count there.
type Warnings struct {
	mu   sync.Mutex // guards what follows
	ring []statusapi.Warning
	next int // of the oldest in a full ring
}

// Handler returns a handler that keeps lines and passes all on to h.
func (w *Warnings) Handler(h slog.Handler) slog.Handler { return &warningHandler{Handler: h, to: w} }

// Newest returns the lines, the newest first.
func (w *Warnings) Newest() []statusapi.Warning {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]statusapi.Warning, 0, len(w.ring))
	all = append(append(all, w.ring[w.next:]...), w.ring[:w.next]...)
	slices.Reverse(all)
	return all
}

func (w *Warnings) add(one statusapi.Warning) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := len(w.ring); n > 0 {
		last := &w.ring[(w.next+n-1)%n]
		if last.Message == one.Message && last.Level == one.Level && slices.Equal(last.Attributes, one.Attributes) {
			last.Time = one.Time
			last.Count++
			return
		}
	}
	if len(w.ring) < maxWarnings {
		w.ring = append(w.ring, one)
		return
	}
	w.ring[w.next] = one
	w.next = (w.next + 1) % maxWarnings
}

// warningHandler is a slog.Handler.
type warningHandler struct {
	slog.Handler
	to    *Warnings
	group string // begins the keys
	attrs []statusapi.Attribute
}

// Enabled implements slog.Handler. Lines that the log leaves out are kept, too.
func (h *warningHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn || h.Handler.Enabled(ctx, l)
}

// Handle implements slog.Handler.
func (h *warningHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelWarn {
		one := statusapi.Warning{Time: r.Time, Level: r.Level.String(), Message: short(r.Message), Attributes: slices.Clone(h.attrs), Count: 1}
		r.Attrs(func(a slog.Attr) bool {
			one.Attributes = h.with(one.Attributes, a)
			return true
		})
		h.to.add(one)
		if !h.Handler.Enabled(ctx, r.Level) {
			return nil
		}
	}
	return h.Handler.Handle(ctx, r)
}

func (h *warningHandler) with(all []statusapi.Attribute, a slog.Attr) []statusapi.Attribute {
	if len(all) >= maxAttributes || a.Equal(slog.Attr{}) {
		return all
	}
	return append(all, statusapi.Attribute{Key: short(h.group + a.Key), Value: short(a.Value.Resolve().String())})
}

// WithAttrs implements slog.Handler.
func (h *warningHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	n := *h
	n.Handler, n.attrs = h.Handler.WithAttrs(attrs), slices.Clone(h.attrs)
	for _, a := range attrs {
		n.attrs = h.with(n.attrs, a)
	}
	return &n
}

// WithGroup implements slog.Handler.
func (h *warningHandler) WithGroup(name string) slog.Handler {
	n := *h
	n.Handler = h.Handler.WithGroup(name)
	if name != "" {
		n.group += name + "."
	}
	return &n
}

// short returns a text for everybody who may read the metrics: without the numbers of queue pairs, and not longer than maxText.
func short(s string) string {
	s = strings.ToValidUTF8(status.WithoutQPNs(s), "\uFFFD")
	if len(s) <= maxText {
		return s
	}
	return strings.ToValidUTF8(s[:maxText], "") + "…"
}
