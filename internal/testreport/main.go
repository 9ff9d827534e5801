// Command testreport runs go test -json and prints what a reader needs of it: the go tool's line for each package, all output of
// what failed, each skip with its reason, and one closing line that a machine can find:
//
//	412 passed, 0 failed, 2 skipped
//
// Usage:
//
//	testreport [-allow-skips FILE] -- go test -json ARGUMENT...
//
// It exits with 1 when a test or a build failed, when no test ran at all (a pattern that matches nothing must not look like
// success), and, with -allow-skips, when a test was skipped that FILE does not list. See [parseAllowedSkips] for the format.
package main

import (
	"bufio"
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
	allow := flag.String("allow-skips", "", "refuse every skipped test that this `file` does not list")
	flag.Parse()
	if flag.NArg() == 0 {
		fmt.Fprintln(os.Stderr, "testreport: which command? usage: testreport [-allow-skips FILE] -- go test -json ARGUMENT...")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, *allow, flag.Args(), os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
	}
	if err != nil || !ok {
		os.Exit(1)
	}
}

// run runs the command, which is a go test -json with its arguments, writes the report to out, and says whether everything is as it should be. An error means that
// the report itself could not be made.
func run(ctx context.Context, allowFile string, command []string, out, errOut io.Writer) (bool, error) {
	r := newReport(out)
	if allowFile != "" {
		f, err := os.Open(allowFile)
		if err != nil {
			return false, err
		}
		defer f.Close()
		if r.allowed, err = parseAllowedSkips(f); err != nil {
			return false, fmt.Errorf("%s: %w", allowFile, err)
		}
		r.refuseSkips = true
	}

	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Stderr = errOut
	// go test expects that its test binaries get an interrupt too, and leaves them behind otherwise: so it leads a process
	// group, and the group is interrupted. Interrupted, it removes its temporary files; killed, it could not.
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
		if ok { // Nothing in the events says why.
			fmt.Fprintf(out, "%s ended with %v\n", command[0], exit)
		}
		return false, nil
	case waitErr != nil:
		return false, waitErr
	}
	return ok, nil
}

// read feeds the lines of a go test -json stream to the report. A line that is no event (the go tool prints some of its own
// errors so) is passed on as it is.
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
