//go:build linux

package shm

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestOneReasonIsOneErrorLine: peers connect again and again, and each time their memory is too large to
// be shared.
func TestOneReasonIsOneErrorLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		var s errorLog
		log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
		for i := range 160 {
			s.log(log, "file too large", "a line", "queue pair", i)
			time.Sleep(time.Second)
		}
		s.log(log, "no space left", "a line")
		if errors, all := strings.Count(text.String(), "level=ERROR"), strings.Count(text.String(), "\n"); errors != 4 || all != 161 {
			t.Errorf("%d ERROR lines of %d, want 4 of 161: one a minute, and one of another reason", errors, all)
		}
	})
}
