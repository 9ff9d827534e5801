package lograte

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLinesAreBounded: each logger has its number of lines in a pause, and all together have theirs. The next line has
// the number of those left out.
func TestLinesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		all := &Lines{Most: 5}
		logger := func(level slog.Level) *slog.Logger {
			h := slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level})
			return slog.New(Handler{h, &Lines{Most: 3, Of: all}}).With("a", 1).WithGroup("g")
		}
		lines := func(log *slog.Logger, n int) int {
			out.Reset()
			for range n {
				log.Info("x")
			}
			return strings.Count(out.String(), "level=INFO")
		}
		first, second := logger(slog.LevelInfo), logger(slog.LevelDebug)
		if n := lines(first, 10); n != 3 || strings.Count(out.String(), "\n") != 3 {
			t.Errorf("one has %d lines, want 3:\n%s", n, &out)
		}
		if n := lines(second, 10); n != 2 || strings.Count(out.String(), "level=DEBUG") != 8 {
			t.Errorf("both have %d lines more, want 2, and others at DEBUG:\n%s", n, &out)
		}
		time.Sleep(Pause)
		if n := lines(first, 2); n != 2 || !strings.Contains(out.String(), "g.not_logged=7") || strings.Count(out.String(), "not_logged") != 1 {
			t.Errorf("after the pause:\n%s", &out)
		}
	})
}
