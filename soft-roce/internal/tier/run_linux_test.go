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

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm"
)

// failingPlace is a place that cannot run anything.
type failingPlace struct{ native }

func (failingPlace) Run(context.Context, vm.Command) (int, error) {
	return 0, errors.New("boot the VM (tcg): the guest has stopped")
}

// TestRun builds the package of each case and runs it on this machine.
func TestRun(t *testing.T) {
	for _, tt := range []struct {
		name, source string
		entry        Entry
		args         []string
		place        Place
		action       string // of the package
		output       string // a part of the package's output
	}{{
		name:   "passes",
		source: "func TestRxeA(t *testing.T) { if os.Getenv(\"TRYST_TEST_DEVICES\") != \"rxe0,rxe1\" { t.Fatal(\"no devices\") } }\nfunc TestB(t *testing.T) { t.Error(\"not in the list\") }",
		action: "pass", output: "ok  \tm/p\t",
	}, {
		name:   "fails",
		source: "func TestRxeA(t *testing.T) { t.Error(\"on purpose\") }\nvar _ = os.Exit",
		action: "fail", output: "on purpose",
	}, {
		name:   "fails after its tests",
		source: "func TestRxeA(t *testing.T) {}\nfunc TestMain(m *testing.M) { m.Run(); println(\"leaked\"); os.Exit(1) }",
		action: "fail", output: "leaked",
	}, {
		name:   "exits with 0 during a test",
		source: "func TestRxeA(t *testing.T) { os.Exit(0) }",
		action: "fail", output: "unexpected call to os.Exit(0)",
	}, {
		name:   "runs out of time",
		source: "func TestRxeA(t *testing.T) { select {} }\nvar _ = os.Exit",
		entry:  Entry{Args: []string{"-test.timeout=100ms"}},
		action: "fail", output: "test timed out after 100ms",
	}, {
		name:   "has no such test",
		source: "func TestA(t *testing.T) {}\nvar _ = os.Exit",
		action: "fail", output: "no test name matches \"^TestRxe\": no test was run",
	}, {
		name:   "has no selected test",
		source: "func TestRxeA(t *testing.T) { t.Error(\"not selected\") }\nvar _ = os.Exit",
		args:   []string{"--run=TestRxeB"},
		action: "pass", output: "no tests to run",
	}, {
		name:   "has only tests that -skip excludes",
		source: "func TestRxeA(t *testing.T) { t.Error(\"not selected\") }\nvar _ = os.Exit",
		args:   []string{"-skip", "TestRxeA"},
		action: "pass", output: "no tests to run",
	}, {
		name:   "does not build",
		source: "func TestRxeA(t *testing.T) { nothing() }\nvar _ = os.Exit",
		action: "fail", output: "undefined: nothing",
	}, {
		name:   "does not exist",
		source: "func TestRxeA(t *testing.T) {}\nvar _ = os.Exit",
		entry:  Entry{Package: "./q"},
		action: "fail", output: "directory not found",
	}, {
		name:   "has a place that fails",
		source: "func TestRxeA(t *testing.T) {}\nvar _ = os.Exit",
		place:  failingPlace{},
		action: "fail", output: "boot the VM (tcg): the guest has stopped",
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
			var got strings.Builder
			action := ""
			for lines := json.NewDecoder(&events); lines.More(); {
				var e struct{ Action, Package, Test, Output string }
				if err := lines.Decode(&e); err != nil {
					t.Fatal(err)
				}
				got.WriteString(e.Output)
				if e.Test == "" && (e.Action == "pass" || e.Action == "fail" || e.Action == "skip") {
					action = e.Action
				}
			}
			if action != tt.action || !strings.Contains(got.String(), tt.output) {
				t.Errorf("the package's result is %q, want %q with %q; output:\n%s%s", action, tt.action, tt.output, &got, &log)
			}
		})
	}
}

// When the context ends, the events report the package that was running as failed, and Run starts
// no other.
func TestRunEndsWithItsContext(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "go.mod"), "module m\n\ngo 1.26\n")
	put(t, filepath.Join(root, "p", "p_test.go"), "package p\n\nimport \"testing\"\n\nfunc TestRxeA(t *testing.T) {}\n")
	ctx, cancel := context.WithCancelCause(t.Context())
	var events, log bytes.Buffer
	c := Config{Go: "go", Root: root, Binaries: filepath.Join(root, "bin"), Timeout: time.Minute, Events: &events, Log: &log}
	err := Run(ctx, c, []Entry{{Package: "./p", Pattern: "."}, {Package: "./p", Pattern: "."}}, cancellingPlace{cancel: cancel})
	if err == nil || err.Error() != "killed after 30m0s" {
		t.Errorf("error %v, want the cause of the context, killed after 30m0s", err)
	}
	if n := strings.Count(events.String(), `"Action":"fail"`); n != 1 || !strings.Contains(events.String(), "killed after 30m0s") {
		t.Errorf("%d packages failed, want 1 with the cause; events:\n%s", n, &events)
	}
}

// Two places run two packages at once, and no package runs twice. Each line of the events is whole.
func TestPlacesShareThePackages(t *testing.T) {
	root := t.TempDir()
	put(t, filepath.Join(root, "go.mod"), "module m\n\ngo 1.26\n")
	var entries []Entry
	for _, name := range []string{"a", "b", "c", "d"} {
		put(t, filepath.Join(root, name, name+"_test.go"), "package "+name+"\n\nimport \"testing\"\n\nfunc TestRxeA(t *testing.T) {}\n")
		entries = append(entries, Entry{Package: "./" + name, Pattern: "."})
	}
	var events, log bytes.Buffer
	c := Config{Go: "go", Root: root, Binaries: filepath.Join(root, "bin"), Timeout: time.Minute, Events: &events, Log: &log}
	turn := make(chan struct{})
	if err := Run(t.Context(), c, entries, pairedPlace{turn: turn}, pairedPlace{turn: turn}); err != nil {
		t.Fatal(err)
	}
	passed := map[string]int{}
	for lines := json.NewDecoder(&events); lines.More(); {
		var e struct{ Action, Package, Test string }
		if err := lines.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if e.Test == "" && e.Action == "pass" {
			passed[e.Package]++
		}
	}
	if len(passed) != 4 || passed["m/a"] != 1 || passed["m/d"] != 1 {
		t.Errorf("passed: %v, want each of the four packages once; log:\n%s", passed, &log)
	}
}

// pairedPlace is a place whose commands go on in pairs, one of each of two places.
type pairedPlace struct {
	native
	turn chan struct{}
}

func (p pairedPlace) Run(ctx context.Context, c vm.Command) (int, error) {
	select {
	case p.turn <- struct{}{}:
	case <-p.turn:
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return p.native.Run(ctx, c)
}

// cancellingPlace is a place whose commands end only with the context, which it cancels.
type cancellingPlace struct {
	native
	cancel context.CancelCauseFunc
}

func (p cancellingPlace) Run(ctx context.Context, _ vm.Command) (int, error) {
	p.cancel(errors.New("killed after 30m0s"))
	return 0, context.Cause(ctx)
}

// Exit status and error texts of a command are the same on this machine as in the VM.
func TestNativeCommandsEndAsInTheVM(t *testing.T) {
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

// A process that a command leaves running, with the command's output open, is killed and does not
// delay the result.
func TestLeftoverProcessesAreKilled(t *testing.T) {
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
		t.Errorf("status %d, error %v, output %q, errors %q; want 0, no error, done, and a note on the process", status, err, &out, &errs)
	}
	if err := held.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	if _, err := held.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("read from its FIFO: %v, want EOF: the process still runs", err)
	}
}

// The error of a command that was killed is the cause of the context, not context.Canceled.
func TestKilledCommandReturnsTheCause(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	defer cancel(nil)
	out := cancellingWriter{cancel}
	if _, err := (native{}).Run(ctx, vm.Command{Args: []string{"/bin/sh", "-c", "echo; sleep 60"}, Stdout: out, Stderr: out}); err == nil || err.Error() != "killed after 30m0s" {
		t.Errorf("error %v, want killed after 30m0s", err)
	}
}

// cancellingWriter cancels at the first Write.
type cancellingWriter struct{ cancel context.CancelCauseFunc }

func (w cancellingWriter) Write(p []byte) (int, error) {
	w.cancel(errors.New("killed after 30m0s"))
	return len(p), nil
}

func TestWarningIsDetectedAcrossWrites(t *testing.T) {
	for cut := range len(noTests) {
		var d warningDetector
		for _, part := range []string{strings.Repeat("x", 100), noTests[:cut], noTests[cut:], "\nPASS\n"} {
			if n, err := d.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatalf("wrote %d of %d bytes, error %v", n, len(part), err)
			}
		}
		if !d.noTests {
			t.Errorf("not detected when it is cut at byte %d", cut)
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
