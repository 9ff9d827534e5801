// Command testreport runs go test -json and prints a short report: the go tool's line for each package, all output of failed
// tests with the load average of the machine when they failed, each skip with its reason, the load average at the start and at the
// end, and a last line that scripts can find:
//
//	412 passed, 0 failed, 2 skipped
//
// Usage:
//
//	testreport [-allow-skips FILE]... [-budget DURATION] -- go test -json ARGUMENT...
//
// It exits with 1 when a test or a build failed, when no test ran at all (a pattern that matches nothing must not look like
// success), and, with -allow-skips, when a test was skipped that no FILE lists. See [parseAllowedSkips] for the format. Packages whose
// tests took longer than -budget are listed. That is not a failure, since it depends on the load of the machine.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// stopGrace is how long go test and its test binaries may take to end after an interrupt before they are killed.
const stopGrace = 15 * time.Second

func main() {
	var o options
	flag.Func("allow-skips", "refuse every skipped test that neither this `file` nor another one lists", func(file string) error {
		o.allowSkips = append(o.allowSkips, file)
		return nil
	})
	flag.DurationVar(&o.budget, "budget", 0, "list the packages whose tests took longer than this `duration`")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "testreport: the command is missing; usage: testreport [-allow-skips FILE]... [-budget DURATION] -- go test -json ARGUMENT...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, o, flag.Args(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	allowSkips []string // files; with none every skip is allowed
	budget     time.Duration
	loadFile   string // "" is /proc/loadavg
}

// run runs the command, a go test -json with its arguments, and writes the report to out. It reports whether the whole run passed.
// An error means that there is no report.
func run(ctx context.Context, o options, command []string, out, errOut io.Writer) (bool, error) {
	r := newReport(out, cmp.Or(o.loadFile, "/proc/loadavg"))
	r.budget = o.budget
	for _, file := range o.allowSkips {
		allowed, err := readAllowedSkips(file)
		if err != nil {
			return false, err
		}
		r.allowed, r.refuseSkips = append(r.allowed, allowed...), true
	}

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = errOut
	// go test expects that its test binaries are interrupted, too; otherwise they keep running. So it gets a process group of
	// its own, which is interrupted as a whole. An interrupted go test removes its temporary files; a killed one does not.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var kill *time.Timer
	cmd.Cancel = func() error {
		group := -cmd.Process.Pid
		kill = time.AfterFunc(stopGrace, func() { _ = syscall.Kill(group, syscall.SIGKILL) })
		return syscall.Kill(group, syscall.SIGINT)
	}
	events, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	readErr := r.read(events)
	waitErr := cmd.Wait()
	if kill != nil {
		kill.Stop()
	}

	ok := r.close()
	if readErr != nil {
		return false, fmt.Errorf("reading the output of %s: %w", command[0], readErr)
	}
	var exit *exec.ExitError
	switch {
	case errors.As(waitErr, &exit):
		if ok { // The events do not have the reason.
			fmt.Fprintf(out, "%s ended with %v\n", command[0], exit)
		}
		return false, nil
	case waitErr != nil:
		return false, waitErr
	}
	return ok, nil
}

// read passes the lines of a go test -json stream to the report. A line that is not an event, such as some errors of the go tool,
// is printed unchanged.
func (r *report) read(events io.Reader) error {
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			r.line(line)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
