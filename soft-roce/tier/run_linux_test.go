package tier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/soft-roce/vm"
)

// fallen is a place that cannot run anything.
type fallen struct{ native }

func (fallen) Run(context.Context, vm.Command) (int, error) {
	return 0, errors.New("boot the VM (tcg): the guest has stopped")
}

// Each case is a package as somebody could write it, built and run for real, on this machine.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		entry        Entry
		args         []string
		place        Place
		action       string // of the package
		words        string // in its output
	}{{
		name:   "passes",
		source: "func TestRxeA(t *testing.T) { if os.Getenv(\"TRYST_TEST_DEVICES\") != \"rxe0,rxe1\" { t.Fatal(\"no devices\") } }\nfunc TestB(t *testing.T) { t.Error(\"not of the tier\") }",
		action: "pass", words: "ok  \tm/p\t",
	}, {
		name:   "fails",
		source: "func TestRxeA(t *testing.T) { t.Error(\"on purpose\") }\nvar _ = os.Exit",
		action: "fail", words: "on purpose",
	}, {
		name:   "fails after its tests",
		source: "func TestRxeA(t *testing.T) {}\nfunc TestMain(m *testing.M) { m.Run(); println(\"leaked\"); os.Exit(1) }",
		action: "fail", words: "leaked",
	}, {
		name:   "exits with 0 under a test",
		source: "func TestRxeA(t *testing.T) { os.Exit(0) }",
		action: "fail", words: "unexpected call to os.Exit(0)",
	}, {
		name:   "runs out of time",
		source: "func TestRxeA(t *testing.T) { select {} }\nvar _ = os.Exit",
		entry:  Entry{Args: []string{"-test.timeout=100ms"}},
		action: "fail", words: "test timed out after 100ms",
	}, {
		name:   "has no such test",
		source: "func TestA(t *testing.T) {}\nvar _ = os.Exit",
		action: "fail", words: "no test's name matches \"^TestRxe\": nothing was tested",
	}, {
		name:   "has no test that was asked for",
		source: "func TestRxeA(t *testing.T) { t.Error(\"not asked for\") }\nvar _ = os.Exit",
		args:   []string{"--run=TestRxeB"},
		action: "pass", words: "no tests to run",
	}, {
		name:   "has nothing but what is to be left out",
		source: "func TestRxeA(t *testing.T) { t.Error(\"not asked for\") }\nvar _ = os.Exit",
		args:   []string{"-skip", "TestRxeA"},
		action: "pass", words: "no tests to run",
	}, {
		name:   "does not build",
		source: "func TestRxeA(t *testing.T) { nothing() }\nvar _ = os.Exit",
		action: "fail", words: "undefined: nothing",
	}, {
		name:   "is not there",
		source: "func TestRxeA(t *testing.T) {}\nvar _ = os.Exit",
		entry:  Entry{Package: "./q"},
		action: "fail", words: "directory not found",
	}, {
		name:   "has no place",
		source: "func TestRxeA(t *testing.T) {}\nvar _ = os.Exit",
		place:  fallen{},
		action: "fail", words: "boot the VM (tcg): the guest has stopped",
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			put(t, filepath.Join(root, "go.mod"), "module m\n\ngo 1.26\n")
			put(t, filepath.Join(root, "p", "p.go"), "package p\n")
			put(t, filepath.Join(root, "p", "p_test.go"), "//go:build rxe\n\npackage p\n\nimport (\n\"os\"\n\"testing\"\n)\n\n"+tt.source)
			if tt.entry.Package == "" {
				tt.entry.Package = "./p"
			}
			tt.entry.Pattern = "^TestRxe"
			if tt.place == nil {
				tt.place = native{}
			}
			var events, log bytes.Buffer
			c := Config{Go: "go", Root: root, Binaries: filepath.Join(root, "bin"), Timeout: time.Minute, Args: tt.args, Events: &events, Log: &log}
			if err := Run(t.Context(), c, []Entry{tt.entry}, tt.place); err != nil {
				t.Fatal(err)
			}
			var output strings.Builder
			action := ""
			for lines := json.NewDecoder(&events); lines.More(); {
				var e struct{ Action, Package, Test, Output string }
				if err := lines.Decode(&e); err != nil {
					t.Fatal(err)
				}
				output.WriteString(e.Output)
				if e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
					action = e.Action
				}
			}
			if action != tt.action || !strings.Contains(output.String(), tt.words) {
				t.Errorf("the package's end is %q, want %q with %q; output:\n%s%s", action, tt.action, tt.words, &output, &log)
			}
		})
	}
}

// When the whole takes too long, what was under way is told, and the rest is not begun.
func TestRunEndsWithItsContext(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "go.mod"), "module m\n\ngo 1.26\n")
	put(t, filepath.Join(root, "p", "p_test.go"), "package p\n\nimport \"testing\"\n\nfunc TestRxeA(t *testing.T) {}\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	var events, log bytes.Buffer
	c := Config{Go: "go", Root: root, Binaries: filepath.Join(root, "bin"), Timeout: time.Minute, Events: &events, Log: &log}
	err := Run(ctx, c, []Entry{{Package: "./p", Pattern: "."}, {Package: "./p", Pattern: "."}}, late{cancel: cancel})
	if err == nil || err.Error() != "killed after 30m0s" {
		t.Errorf("error %v", err)
	}
	if n := strings.Count(events.String(), `"Action":"fail"`); n != 1 || !strings.Contains(events.String(), "killed after 30m0s") {
		t.Errorf("%d packages failed; events:\n%s", n, &events)
	}
}

// late is a place where everything takes too long.
type late struct {
	native
	cancel context.CancelCauseFunc
}

func (l late) Run(ctx context.Context, _ vm.Command) (int, error) {
	l.cancel(errors.New("killed after 30m0s"))
	return 0, context.Cause(ctx)
}

// A command ends on this machine as it does in the VM.
func TestCommandsEndAsInTheVM(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		status int
		errs   string
	}{
		{[]string{"/bin/sh", "-c", "exit 7"}, 7, ""},
		{[]string{"/bin/sh", "-c", "kill -9 $$"}, 137, "/bin/sh: signal: killed\n"},
		{[]string{"/no/such/program"}, 127, "/no/such/program: fork/exec /no/such/program: no such file or directory\n"},
	} {
		var out, errs bytes.Buffer
		status, err := native{}.Run(t.Context(), vm.Command{Args: tt.args, Stdout: &out, Stderr: &errs})
		if status != tt.status || err != nil || errs.String() != tt.errs {
			t.Errorf("%v: status %d, error %v, errors %q; want %d, %q", tt.args, status, err, &errs, tt.status, tt.errs)
		}
	}
}

// What a command leaves running, with its output open, holds up nothing, and is ended.
func TestLeftoversAreEnded(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	held, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	var out, errs bytes.Buffer
	status, err := native{}.Run(t.Context(), vm.Command{Args: []string{"/bin/sh", "-c", "sleep 60 3>" + fifo + " & echo done"}, Stdout: &out, Stderr: &errs})
	if status != 0 || err != nil || out.String() != "done\n" || !strings.Contains(errs.String(), "left running") {
		t.Errorf("status %d, error %v, output %q, errors %q", status, err, &out, &errs)
	}
	if err := held.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("what was left still runs: %v", err)
	}
}

// The deadline's own words are told, not those of the context's kind.
func TestCommandThatIsEndedSaysWhy(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := cancels{cancel}
	if _, err := (native{}).Run(ctx, vm.Command{Args: []string{"/bin/sh", "-c", "echo; sleep 60"}, Stdout: out, Stderr: out}); err == nil || err.Error() != "killed after 30m0s" {
		t.Errorf("error %v", err)
	}
}

// cancels is an output after whose first line the time is over.
type cancels struct{ cancel context.CancelCauseFunc }

func (c cancels) Write(p []byte) (int, error) {
	c.cancel(errors.New("killed after 30m0s"))
	return len(p), nil
}

func TestWatcherSeesWordsThatComeInParts(t *testing.T) {
	const words = "testing: warning: no tests to run"
	for cut := range len(words) {
		var w watcher
		for _, part := range []string{strings.Repeat("x", 100), words[:cut], words[cut:], "\nPASS\n"} {
			if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatalf("%d of %d, error %v", n, len(part), err)
			}
		}
		if !w.nothing {
			t.Errorf("cut at %d it is not seen", cut)
		}
	}
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
