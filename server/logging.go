package server

import (
	"io"
	"log/slog"

	"github.com/tryst-rdma/tryst/config"
)

// NewLogger returns the logger that the settings ask for, over w.
func NewLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}
