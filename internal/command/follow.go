package command

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/status"
)

// follow is pull --watch: it writes the files of each version, and runs the command.
func (s streams) follow(cmd *cobra.Command, o *pullOptions) error {
	if err := o.checkExec(); err != nil {
		return err
	}
	bar := newProgress(s.err, "pull")
	defer bar.end()
	note := func(text string) { fmt.Fprintf(bar, "%s: %s\n", cmd.CommandPath(), printable(text)) }
	o.out.Found = func(f checkpoint.Found) { note(foundText(f)) }
	return o.from.with(cmd, s, bar, func(ctx context.Context, c *server.Client) error {
		o.req.Interrupted = func(i checkpoint.Interruption) { note(interruptionText(i, c.Target())) }
		return c.Puller().Mirror(ctx, o.req, o.out, func(ctx context.Context, m checkpoint.Mirrored) error {
			if m.Summary.Unsynced != nil {
				note(unsyncedText(m.Summary.Unsynced))
			}
			if m.Untidy != nil {
				note("the files of an older version stay: " + status.From(m.Untidy).Message())
			}
			if err := s.mirrored(o, m, routesOf(m.Summary, c)); err != nil {
				return err
			}
			if o.exec == "" {
				return nil
			}
			if err := s.runFor(ctx, o, m); err != nil && ctx.Err() == nil {
				note(fmt.Sprintf("--exec, for version %s: %v; the watch goes on", m.Publication.Version, err))
			}
			return nil
		})
	})
}

// mirrored writes the result of a version.
func (s streams) mirrored(o *pullOptions, m checkpoint.Mirrored, by routes) error {
	if o.json {
		return writeJSON(s.out, pullRecordOf(m.Summary, by))
	}
	return s.writeSummary(m.Summary, by)
}

// The variables of --exec. They do not begin with TRYST_: those are settings, and the command may be a tryst.
const (
	pulledPath        = "PULLED_PATH"
	pulledPublication = "PULLED_PUBLICATION"
	pulledVersion     = "PULLED_VERSION"
	pulledNumber      = "PULLED_NUMBER"
)

// runFor runs the command of --exec for a version. It ends with ctx. With --json its output goes to stderr, so
// that stdout has the results alone.
func (s streams) runFor(ctx context.Context, o *pullOptions, m checkpoint.Mirrored) error {
	c := exec.CommandContext(ctx, "sh", "-c", o.exec) //nolint:gosec // it is the user's command
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = execGrace
	c.Stdout, c.Stderr = s.out, s.err
	if o.json {
		c.Stdout = s.err
	}
	c.Env = append(c.Environ(), pulledPath+"="+m.Path, pulledPublication+"="+m.Publication.Name,
		pulledVersion+"="+m.Publication.Version, pulledNumber+"="+strconv.FormatUint(m.Publication.Number, 10))
	return c.Run()
}

// checkExec reports that there is no shell, as in an image without one, before anything is pulled.
func (o *pullOptions) checkExec() error {
	if o.exec == "" {
		return nil
	}
	if _, err := exec.LookPath("sh"); err != nil {
		return status.Errorf(status.FailedPrecondition, "--exec needs a shell: %v", err)
	}
	return nil
}
