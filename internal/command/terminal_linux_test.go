package command

import (
	"bytes"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns a terminal 80 columns wide, and what stood on it when it is
// closed.
func terminal(t *testing.T) (tty *os.File, shown func() string) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	n, err := unix.IoctlGetInt(int(screen.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(screen.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(screen.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80})
	}
	if err == nil {
		tty, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	text := make(chan string, 1)
	go func() {
		var b bytes.Buffer
		_, _ = io.Copy(&b, screen) // ends with EIO when nobody has the terminal open
		text <- b.String()
	}()
	return tty, func() string {
		tty.Close()
		return <-text
	}
}

// frames are what was drawn on one line, one over the other.
func frames(shown string) []string { return strings.Split(shown, "\r") }

func TestBarOnATerminal(t *testing.T) {
	model := large(t)
	address := serve(t, model)
	tty, shown := terminal(t)
	out := filepath.Join(t.TempDir(), "x.safetensors")
	var results bytes.Buffer
	code := run(t.Context(), streams{out: &results, err: tty, env: []string{}}, []string{"pull", "--from", address, "--transport", "grpc", "--out", out})
	text := shown()
	if code != exitDone {
		t.Fatalf("exit status %d\n%s", code, text)
	}
	if !regexp.MustCompile(`\rpull +\d+% \[=*>? *\] \S+/33\.6 MB, .*\d+/32 tensors over grpc`).MatchString(text) {
		t.Errorf("no bytes and tensors in %q", text)
	}
	if !regexp.MustCompile(`\rpull 100% \[=+\] 33\.6/33\.6 MB, \S+ .?B/s, 32/32 tensors over grpc, in \S+s *\r\n$`).MatchString(text) {
		t.Errorf("no whole bar at the end of %q", text)
	}
	for _, frame := range frames(text) {
		if len(frame) > 80 {
			t.Errorf("wider than the terminal: %q", frame)
		}
	}
	if !strings.Contains(results.String(), "large") {
		t.Errorf("results: %q", results.String())
	}
}

// A log goes above the bar, an error below it.
func TestBarAmongOtherLines(t *testing.T) {
	tty, shown := terminal(t)
	p := newProgress(tty, "pull")
	p.update(40, 100)
	if _, err := p.Write([]byte("WARN\n")); err != nil {
		t.Error(err)
	}
	p.end()
	if _, err := tty.WriteString("tryst pull: failed\n"); err != nil {
		t.Error(err)
	}
	text := shown()
	if !regexp.MustCompile(`\rpull  40% [^\r]+\r +\rWARN\r\n\r?\n?tryst pull: failed\r\n$`).MatchString(text) {
		t.Errorf("%q", text)
	}
}

// A terminal would interpret the bytes of a file.
func TestPullToATerminal(t *testing.T) {
	tty, shown := terminal(t)
	var e bytes.Buffer
	code := run(t.Context(), streams{out: tty, err: &e, env: []string{}}, []string{"pull", "--from", "127.0.0.1:1", "--out", "-"})
	if text := shown(); code != exitUsage || text != "" || !strings.Contains(e.String(), "--out -: stdout is a terminal: redirect it") {
		t.Errorf("exit status %d, %q, %q", code, text, e.String())
	}
}

// TestServeEndsWithItsTerminal: closing a terminal sends SIGHUP, and must not leave a server. One that
// nohup has started reads its files again, although it has a terminal.
func TestServeEndsWithItsTerminal(t *testing.T) {
	caught := make(chan os.Signal, 1) // so that commands have the default even if these tests ignore it
	signal.Notify(caught, unix.SIGHUP)
	defer signal.Stop(caught)
	for name, ignored := range map[string]bool{"in a terminal": false, "with SIGHUP ignored": true} {
		t.Run(name, func(t *testing.T) {
			tty, _ := terminal(t)
			defer tty.Close()
			model := generate(t)
			p := command(t, nil, "serve", "--listen", "127.0.0.1:0", model)
			p.Stdin = tty
			if ignored {
				p.Args = append([]string{"sh", "-c", `trap "" HUP; exec "$0" "$@"`, p.Path}, p.Args[1:]...)
				p.Path = "/bin/sh"
			}
			p.begin(t)
			p.err.until(t, serving)
			if err := os.WriteFile(model, []byte("broken"), 0o600); err != nil { // in place
				t.Fatal(err)
			}
			if err := p.Process.Signal(unix.SIGHUP); err != nil {
				t.Fatal(err)
			}
			if ignored {
				p.err.until(t, regexp.MustCompile(`(msg="the old version stays published; )`))
				if err := p.Process.Signal(unix.SIGTERM); err != nil {
					t.Fatal(err)
				}
			}
			if r := p.end(t); r.code != exitDone || !strings.Contains(r.err, "msg=stopped") {
				t.Errorf("exit status %d\n%s", r.code, r.err)
			}
		})
	}
}
