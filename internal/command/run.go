package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/config"
	"github.com/tryst-rdma/tryst/internal/config/sources"
	"github.com/tryst-rdma/tryst/status"
)

// The exit statuses. Those of an interrupt and of a broken pipe are the shell's for SIGINT and
// SIGPIPE.
const (
	exitDone        = 0
	exitFailed      = 1
	exitUsage       = 2
	exitInterrupted = 130
	exitPipe        = 141
)

// errInterrupted is the cause of a context that was cancelled by a signal.
var errInterrupted error = status.New(status.Cancelled, "interrupted by a signal")

// streams are the input and outputs of a command, its environment, and its signals.
type streams struct {
	in  *os.File  // only to find out whether it is a terminal; nil: it is none
	out io.Writer // results
	err io.Writer // progress, logs, errors
	env []string  // NAME=VALUE; nil: the environment of the process

	signals chan<- os.Signal // interrupts the command; nil if only its context does

	options Options
}

// output keeps the first write error, since the code that prints help ignores errors.
type output struct {
	to  io.Writer
	err error
}

// Unwrap returns where the output goes, for console.Width.
func (o *output) Unwrap() io.Writer { return o.to }

func (o *output) Write(b []byte) (int, error) {
	n, err := o.to.Write(b)
	if err != nil && o.err == nil {
		o.err = err
	}
	return n, err
}

// hintAfter is how long a command may take to stop before it says that a second Ctrl-C ends it.
const hintAfter = 3 * time.Second

// interruptible runs work until it returns or a second signal arrives. The first signal
// cancels the context of work, which then stops gracefully. After the second one,
// interruptible returns at once. The command, by its name, says on w what the second one would do, and that it was done.
func interruptible(w io.Writer, name string, signals <-chan os.Signal, work func(context.Context) int) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	done := make(chan int, 1)
	go func() { done <- work(ctx) }()
	var hint <-chan time.Time
	for seen := 0; seen < 2; {
		select {
		case code := <-done:
			return code
		case s := <-signals:
			cancel(errInterrupted)
			if seen++; seen == 1 && s == os.Interrupt { // somebody sits at a terminal
				hint = time.After(hintAfter)
			}
		case <-hint:
			_, _ = fmt.Fprintln(w, name+": stopping; a second Ctrl-C ends at once, without waiting for what is under way") // nothing can be done about a stderr that fails
		}
	}
	_, _ = fmt.Fprintln(w, name+": ended at once by a second signal: what was under way is cut off") // as above
	return exitInterrupted
}

// run executes one command line and returns its exit status.
func run(ctx context.Context, s streams, args []string) int {
	out := &output{to: s.out}
	s.out = out
	root := newRoot(s)
	root.SetArgs(append([]string{}, args...)) // nil would mean the arguments of the process
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		err = out.err
	}
	if err == nil {
		return exitDone
	}
	if errors.Is(out.err, syscall.EPIPE) && errors.Is(err, syscall.EPIPE) {
		return exitPipe // as in tryst keys | head: the reader of the results has enough
	}
	_, wrong := errors.AsType[usageError](err)
	// An error other than the cancellation is reported even if a signal came.
	interrupted := errors.Is(context.Cause(ctx), errInterrupted) && errors.Is(err, context.Canceled)
	all := lines(err)
	for i, line := range all {
		switch {
		case interrupted:
			line = "interrupted: " + line
		case wrong && i == len(all)-1:
			line += "; see '" + cmd.CommandPath() + " --help'"
		}
		fmt.Fprintf(s.err, "%s: %s\n", cmd.CommandPath(), line)
	}
	switch {
	case interrupted:
		return exitInterrupted
	case wrong:
		return exitUsage
	}
	return exitFailed
}

// usageError is an error in the command line or the settings.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// wrongUsage returns one error for all that is wrong, so that a command names it at once; nil
// if nothing is.
func wrongUsage(problems ...error) error {
	if err := errors.Join(problems...); err != nil {
		return usageError{err}
	}
	return nil
}

// lines returns the text of an error: a line for each of the errors joined in it, without
// their status codes.
func lines(err error) []string {
	if usage, ok := errors.AsType[usageError](err); ok {
		err = usage.error
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []string
		for _, e := range joined.Unwrap() {
			all = append(all, lines(e)...)
		}
		return all
	}
	return []string{printable(status.From(err).Message())}
}

// load returns the settings for a command.
func (s streams) load(cmd *cobra.Command, use config.Use) (*sources.Loaded, error) {
	c, err := sources.Load(sources.Options{Flags: cmd.Flags(), Environ: s.env, Use: use})
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}
