//go:build page

package page

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTopInTmux: three processes on one screen of 80 columns and of 160; the wait that hangs is the first line, enter shows all of it.
func TestTopInTmux(t *testing.T) {
	nodes := startNodes(t)
	socket := filepath.Join(t.TempDir(), "tmux")
	tmux := func(args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "tmux", append([]string{"-S", socket, "-f", "/dev/null"}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("tmux %q: %s, %v (on Debian, apt-get install tmux)", args, out, err)
		}
		return string(out)
	}
	command := os.Getenv("TRYST") + " top"
	for _, n := range nodes {
		command += " " + n.metrics
	}
	for _, width := range []int{80, 160} {
		tmux("new-session", "-d", "-x", fmt.Sprint(width), "-y", "24", command)
		screen := func(what, want string) string {
			t.Helper()
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for begin := time.Now(); ; <-tick.C {
				text := tmux("capture-pane", "-p")
				if strings.Contains(text, want) {
					return text
				}
				if time.Since(begin) > soon {
					t.Fatalf("%s: no %q in\n%s", what, want, text)
				}
			}
		}
		first := func() string { return strings.Split(tmux("capture-pane", "-p"), "\n")[5] }
		text := screen("waits", "(oldest ") // some wait for long by now
		for begin := time.Now(); !strings.Contains(first(), "gradients"); {
			if time.Since(begin) > soon {
				t.Fatalf("the longest wait is not the first line: %q", first())
			}
		}
		keep(t, fmt.Sprintf("top-%d-waits", width), text)
		for i := range nodes {
			screen("a process", fmt.Sprint("worker:", i))
		}
		tmux("send-keys", "Enter")
		keep(t, fmt.Sprintf("top-%d-detail", width), screen("detail", "key       gradients/missing"))
		leave := func(what, text string) { // Escape and another key at once would be one key
			t.Helper()
			tmux("send-keys", "Escape")
			for begin := time.Now(); strings.Contains(tmux("capture-pane", "-p"), text); {
				if time.Since(begin) > soon {
					t.Fatalf("%s stays", what)
				}
			}
		}
		leave("the detail", "key       gradients")
		tmux("send-keys", "2")
		keep(t, fmt.Sprintf("top-%d-peers", width), screen("peers", "received/s"))
		tmux("send-keys", "/", "w", "o", "r", "k", "e", "r", ":", "2", "Enter", "s", "r")
		keep(t, fmt.Sprintf("top-%d-filter", width), screen("filter", "filter: worker:2"))
		leave("the filter", "filter: worker:2")
		tmux("send-keys", "6")
		keep(t, fmt.Sprintf("top-%d-limits", width), screen("limits", "common memory"))
		tmux("send-keys", "7")
		keep(t, fmt.Sprintf("top-%d-warnings", width), screen("warnings", "the limits together"))
		tmux("resize-window", "-x", "100", "-y", "40")
		tmux("send-keys", "?")
		keep(t, fmt.Sprintf("top-%d-help", width), screen("help", "A job hangs?"))
		tmux("send-keys", "x", "q")
		for range 100 { // the session ends with the command, and the server with the session
			if exec.CommandContext(t.Context(), "tmux", "-S", socket, "has-session").Run() != nil {
				break
			}
			<-time.After(50 * time.Millisecond)
		}
	}
	once := exec.CommandContext(t.Context(), os.Getenv("TRYST"), "top", "--once", nodes[0].metrics, nodes[2].metrics)
	out, err := once.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "gradients/missing") || strings.Contains(string(out), "\x1b") {
		t.Errorf("%v:\n%s", err, out)
	}
	keep(t, "top-once", string(out))
	if out, err := exec.CommandContext(t.Context(), os.Getenv("TRYST"), "top", "--once", "127.0.0.1:1").CombinedOutput(); err == nil || !strings.Contains(string(out), "127.0.0.1:1: ") {
		t.Errorf("%v: %s", err, out)
	}
}

// keep keeps a screen below build/page.
func keep(t *testing.T, name, text string) {
	t.Helper()
	dir := os.Getenv("PICTURES")
	if err := os.MkdirAll(dir, 0o755); err != nil { //nolint:gosec // pictures
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, name+".txt"), []byte(text), 0o644); err != nil { //nolint:gosec // pictures
		t.Fatal(err)
	}
}
