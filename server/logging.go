package server

import (
	"io"
	"log/slog"

	"github.com/tryst-rdma/tryst/internal/config"
)

// NewLogger returns the logger that the settings ask for, over w.
func NewLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// LogInherited tells which settings come from a variable that TensorFlow's verbs
// extension had: its README and its code name them differently.
func LogInherited(log *slog.Logger, c config.Config) {
	for _, e := range config.Describe(c) {
		if e.Source.Kind == config.FromTensorFlow {
			log.Info("a setting comes from a variable of TensorFlow's verbs", "setting", e.Key, "value", e.Value, "variable", e.Source.Name)
		}
	}
}
