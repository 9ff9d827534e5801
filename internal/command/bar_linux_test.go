package command

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestBarFitsTheTerminal: on a terminal of 30 columns a bar is one line, drawn over itself. On one
// of 100 it shows the bytes, the rate, how many tensors have come, and over which transport.
func TestBarFitsTheTerminal(t *testing.T) {
	address := serve(t, large(t))
	for columns, wants := range map[uint16][]string{
		30:  {"\rpull 100% ["},
		100: {"\rpull 100% [", "] 33.6/33.6 MB, ", "B/s, 32/32 tensors over grpc, "},
	} {
		tty, shown := terminalOf(t, columns)
		var out bytes.Buffer
		code := run(t.Context(), streams{out: &out, err: tty, env: []string{}}, []string{"pull", "--from", address, "--transport", "grpc", "--out", filepath.Join(t.TempDir(), "x.safetensors")})
		text := shown()
		if code != exitDone || strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") {
			t.Errorf("%d columns: exit status %d, not one line: %q", columns, code, text)
		}
		for _, frame := range frames(text) {
			if n := utf8.RuneCountInString(frame); n > int(columns) {
				t.Errorf("%d columns: wider than the terminal: %q", columns, frame)
			}
		}
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%d columns: no %q in %q", columns, want, text)
			}
		}
	}
}
