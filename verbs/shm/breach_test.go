//go:build linux

package shm

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// TestBreachesAreOneErrorLine: a peer goes on after it has broken its queue pair, and breaks others.
func TestBreachesAreOneErrorLine(t *testing.T) {
	var log bytes.Buffer
	x := newTestEnd(t, New(Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}), 4096)
	for range 3 {
		i := newImpostor(t, x)
		i.passRing()
		m := fileMessage(kindDrop, 1)
		for range 100 {
			i.write(m[:], nil)
		}
		x.finishes(t, true)
		i.conn.Close()
		i.ring.free()
		x.reset()
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 {
		t.Errorf("%d ERROR lines, want 1: %s", n, &log)
	}
}
