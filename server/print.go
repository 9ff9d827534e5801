package server

import (
	"log/slog"

	"github.com/tryst-rdma/tryst/server/internal/lograte"
)

// printer returns a function that logs what nodes of graphs print. A node of a loop may print without end.
func printer(log *slog.Logger) func(step int64, node, stream, text string) {
	lines := slog.New(lograte.Handler{Handler: log.Handler(), Lines: &lograte.Lines{Most: printedLines}})
	return func(step int64, node, stream, text string) {
		lines.Info("a node of a graph prints", "text", text, "node", node, "stream", stream, "step", step)
	}
}
