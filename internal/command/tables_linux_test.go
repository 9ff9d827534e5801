package command

import (
	"bytes"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// terminalOf is terminal with another width.
func terminalOf(t *testing.T, columns uint16) (tty *os.File, shown func() string) {
	t.Helper()
	tty, shown = terminal(t)
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
		t.Fatal(err)
	}
	return tty, shown
}

// TestTablesFitTheTerminal: no line of a table, of the report of doctor or of the flags in the
// help is wider than the terminal, and nothing is cut off. A pipe gets whole lines.
func TestTablesFitTheTerminal(t *testing.T) {
	model := generate(t)
	address := serve(t, model)
	for _, c := range []struct {
		args  []string
		texts []string // on the terminal
		whole string   // what a line begins with for a pipe
	}{
		{[]string{"pull", "--from", address, "--transport", "grpc", "--force", "--out", model + ".copy.safetensors"}, []string{"PUBLICATION      tiny", "\nTENSORS ", "over grpc"}, "PUBLICATION  TENSORS  BYTES"},
		{[]string{"keys", "--from", address}, []string{"tiny"}, "NAME  VERSION"},
		{[]string{"keys", "--from", address, "--tensors"}, []string{"DTYPE"}, "NAME"},
		{[]string{"bench", "--routes", "--from", address, "--provider", "roce", "--time", "1ms"}, []string{"grpc"}, "ROUTE"},
		{[]string{"config"}, []string{"SETTING"}, "SETTING"},
		{[]string{"gen", "--model", "tiny", "--force", "--out", model}, []string{"tiny"}, "MODEL"},
		{[]string{"pull", "--help"}, []string{"--timeout duration"}, ""},
		{[]string{"doctor"}, []string{"OK"}, ""},
	} {
		const columns = 50
		tty, shown := terminalOf(t, columns)
		var e bytes.Buffer
		code := run(t.Context(), streams{out: tty, err: &e, env: []string{}}, c.args)
		text := strings.ReplaceAll(shown(), "\r\n", "\n")
		if code != exitDone && c.args[0] != "doctor" { // what it finds depends on the machine
			t.Errorf("%v: exit status %d\n%s", c.args, code, &e)
		}
		for _, want := range c.texts {
			if !strings.Contains(text, want) {
				t.Errorf("%v: no %q in\n%s", c.args, want, text)
			}
		}
		for line := range strings.Lines(text) {
			line = strings.TrimSuffix(line, "\n")
			help := c.args[len(c.args)-1] == "--help"
			inTable := !help && !strings.HasPrefix(line, "wrote ") || help && strings.HasPrefix(line, "      --")
			if n := utf8.RuneCountInString(line); n > columns && inTable {
				t.Errorf("%v: a line of %d columns: %q", c.args, n, line)
			}
		}
		if c.whole != "" {
			if out := tryst(t, c.args...).out; !strings.HasPrefix(out, c.whole) {
				t.Errorf("%v: a pipe got\n%s", c.args, out)
			}
		}
	}
}
