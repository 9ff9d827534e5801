package server

import (
	"io"
	"log/slog"

	"github.com/tryst-rdma/tryst/internal/config"
)

// NewLogger returns a logger with the level and format of the settings that writes to w.
func NewLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// LogInherited logs which settings come from variables of TensorFlow's verbs extension. Its
// README and its code use different names for them, so a user may set one by mistake.
func LogInherited(log *slog.Logger, c config.Config) {
	for _, e := range config.Describe(c) {
		if e.Source.Kind == config.FromTensorFlow {
			log.Info("a setting comes from a variable of TensorFlow's verbs extension", "setting", e.Key, "value", e.Value, "variable", e.Source.Name)
		}
	}
}
