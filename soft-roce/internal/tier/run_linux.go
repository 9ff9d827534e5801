package tier

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm"
)

// Config configures Run. Paths are absolute.
type Config struct {
	Go       string        // the go command
	Root     string        // the module's directory
	Binaries string        // the directory for the test binaries, which the VM must have access to
	Timeout  time.Duration // of one package's tests
	Args     []string      // further arguments for every package, as for go test
	Events   io.Writer     // gets the events, one JSON object a line, as go test -json writes them
	Log      io.Writer     // gets a line for each slow operation
}

// Place is a machine with the devices: a VM, or this one.
type Place interface {
	// Run runs a command there, as [vm.Machine.Run] does. After an error the next call has a new
	// place.
	Run(context.Context, vm.Command) (int, error)
	Close() error
}

// Run builds and runs the entries, each at the first place that is free. The events report a package that
// does not build or whose tests fail. An error means that the events are incomplete.
func Run(ctx context.Context, c Config, entries []Entry, places ...Place) error {
	if err := os.MkdirAll(c.Binaries, 0o755); err != nil {
		return err
	}
	c.Events, c.Log = &lockedWriter{to: c.Events}, &lockedWriter{to: c.Log}
	queue := make(chan Entry, len(entries))
	for _, e := range entries {
		queue <- e
	}
	close(queue)
	g, ctx := errgroup.WithContext(ctx)
	for _, place := range places {
		g.Go(func() error {
			for e := range queue {
				if err := c.run(ctx, e, place); err != nil {
					return err
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// lockedWriter serves several writers. Those of events write whole lines.
type lockedWriter struct {
	mu sync.Mutex
	to io.Writer
}

func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.to.Write(p)
}

// testPackage is the output of go list for a package.
type testPackage struct{ path, dir string }

func (c Config) run(ctx context.Context, e Entry, place Place) error {
	pkg, err := c.find(ctx, e)
	if err != nil {
		return c.report(e.Package, func(w io.Writer) error { return err })
	}
	binary := filepath.Join(c.Binaries, strings.ReplaceAll(strings.TrimPrefix(e.Package, "./"), "/", "_")+".test")
	return c.report(pkg.path, func(w io.Writer) error {
		if err := c.build(ctx, e, binary); err != nil {
			return err
		}
		further := testArgs(c.Args)
		args := []string{binary, "-test.paniconexit0", "-test.timeout=" + c.Timeout.String(), "-test.run=" + e.Pattern}
		args = slices.Concat(args, e.Args, further, []string{"-test.v=test2json"})
		var warning warningDetector
		out := io.MultiWriter(w, &warning)
		status, err := place.Run(ctx, vm.Command{Args: args, Dir: pkg.dir, Env: vm.Environment(), Stdout: out, Stderr: out})
		switch {
		case err != nil:
			return err
		case status != 0:
			return fmt.Errorf("exit status %d", status)
		case warning.noTests && !selectsTests(further):
			return fmt.Errorf("no test name matches %q: no test was run", e.Pattern)
		}
		return nil
	})
}

// find finds the package with go list.
func (c Config) find(ctx context.Context, e Entry) (testPackage, error) {
	out, err := c.output(ctx, "list", "-tags", Tag, "-f", "{{.ImportPath}} {{.Dir}}", e.Package)
	if err != nil {
		return testPackage{}, err
	}
	path, dir, _ := strings.Cut(strings.TrimSpace(out), " ")
	return testPackage{path, dir}, nil
}

// build builds the test binary with cgo. It does not use the race detector, which is too slow on an
// emulated processor.
func (c Config) build(ctx context.Context, e Entry, binary string) error {
	// A package without tests makes no binary; remove that of an earlier build.
	if err := os.Remove(binary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := c.output(ctx, "test", "-c", "-tags", Tag, "-o", binary, e.Package); err != nil {
		return err
	}
	if _, err := os.Stat(binary); err != nil {
		return fmt.Errorf("%s has no tests", e.Package)
	}
	return nil
}

// output runs the go command with cgo. An error has the command's error output.
func (c Config) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Go, args...)
	cmd.Dir = c.Root
	// Go's build cache does not detect that the header of libibverbs was installed after the last
	// build.
	flags := "-DSHIM_HEADERS"
	for _, variable := range cmd.Environ() {
		if given, ok := strings.CutPrefix(variable, "CGO_CPPFLAGS="); ok {
			flags = given + " -DSHIM_HEADERS"
		}
	}
	cmd.Env = append(cmd.Environ(), "CGO_ENABLED=1", "CGO_CPPFLAGS="+flags)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, &errs, &out)
	}
	return out.String(), nil
}

// report converts the output of a test binary, which run writes, into events. It ends them as go
// test does, with a line and an event for the result of the package.
func (c Config) report(pkg string, run func(io.Writer) error) error {
	// Without ctx and in a process group of its own: an interrupt must not end it before it has
	// converted its input.
	convert := exec.Command(c.Go, "tool", "test2json", "-t", "-p", pkg)
	convert.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	convert.Dir = c.Root
	convert.Stderr = c.Log
	events := &resultFilter{to: c.Events}
	convert.Stdout = events
	in, err := convert.StdinPipe()
	if err != nil {
		return err
	}
	if err := convert.Start(); err != nil {
		return err
	}
	start := time.Now()
	failure := run(in)
	seconds := time.Since(start).Seconds()
	end := event{Time: time.Now(), Action: "pass", Package: pkg, Elapsed: seconds}
	if failure == nil {
		_, err = fmt.Fprintf(in, "ok  \t%s\t%.3fs\n", pkg, seconds)
	} else {
		end.Action = "fail"
		_, err = fmt.Fprintf(in, "%s\nFAIL\t%s\t%.3fs\n", strings.TrimSpace(failure.Error()), pkg, seconds)
	}
	if err := errors.Join(err, in.Close(), convert.Wait(), events.err); err != nil {
		return fmt.Errorf("test2json: %w", err)
	}
	return json.NewEncoder(c.Events).Encode(end)
}

// event is one line of go test -json, with the fields that are used here; "go doc test2json".
type event struct {
	Time    time.Time
	Action  string
	Package string
	Test    string `json:",omitempty"`
	Elapsed float64
}

// resultFilter forwards a stream of events without those for the result of the package. test2json
// derives them from the line PASS and does not know the exit status, which comes later.
type resultFilter struct {
	to   io.Writer
	line []byte // the incomplete last line
	err  error  // the first
}

func (f *resultFilter) Write(p []byte) (int, error) {
	f.line = append(f.line, p...)
	for {
		line, rest, whole := bytes.Cut(f.line, []byte("\n"))
		if !whole {
			return len(p), f.err
		}
		var e event
		if err := json.Unmarshal(line, &e); err != nil || e.Test != "" || (e.Action != "pass" && e.Action != "fail" && e.Action != "skip") {
			if _, err := f.to.Write(append(slices.Clip(line), '\n')); f.err == nil {
				f.err = err
			}
		}
		f.line = rest
	}
}

// noTests is the warning of package testing that no test was run.
const noTests = "testing: warning: no tests to run"

// warningDetector detects noTests in what is written to it, also across several writes.
type warningDetector struct {
	noTests bool   // whether the warning was written
	last    []byte // the end of what was written, as long as the warning
}

func (d *warningDetector) Write(p []byte) (int, error) {
	d.last = append(d.last, p...)
	d.noTests = d.noTests || bytes.Contains(d.last, []byte(noTests))
	if keep := len(noTests); len(d.last) > keep {
		d.last = append(d.last[:0], d.last[len(d.last)-keep:]...)
	}
	return len(p), nil
}
