package command

import (
	"io"
	"log/slog"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
)

// newLogger returns a logger with the level and format of the settings that writes to w.
func newLogger(c config.Log, w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: c.Level, ReplaceAttr: sameInBoth}
	if c.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

// logVariables logs what is surprising about the variables of the environment: settings that come
// from variables of TensorFlow's verbs extension, whose README and code use different names for
// them, so that a user may set one by mistake; and variables of Kubernetes that begin as settings
// do and are none.
func logVariables(log *slog.Logger, c *sources.Loaded) {
	for _, e := range c.Describe() {
		if e.Source.Kind == config.FromTensorFlow {
			log.Info("a setting comes from a variable of TensorFlow's verbs extension", "setting", e.Key, "value", e.Value, "variable", e.Source.Name)
		}
	}
	for _, name := range c.PassedOver() {
		log.Debug("a variable describes a Service of Kubernetes and is not a setting", "variable", name)
	}
}
