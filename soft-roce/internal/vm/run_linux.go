package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/layout"
)

// GuestName is the guest's host name. Programs can detect the guest by it.
const GuestName = layout.GuestName

// Command is a command for Run.
type Command struct {
	Args []string // the program and its arguments
	Dir  string   // absolute
	// Env is the whole environment, NAME=value; see [Environment].
	Env []string
	// Stdout and Stderr get the command's output as it is produced. The command's input is empty.
	Stdout, Stderr io.Writer
}

// Environment returns an environment for commands, which does not depend on that of this process.
// TRYST_TEST_DEVICES names the two devices.
func Environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "USER=root", "LANG=C.UTF-8",
		"TRYST_TEST_DEVICES=rxe0,rxe1",
	}
}

// Run runs a command and returns its exit status. As in a shell, that is 128 plus the number of the
// signal that ended it, and 127 if it could not be started. Processes that the command leaves running
// are killed. After an error, which ends with the console's last lines, the guest cannot be used any
// more.
func (m *Machine) Run(ctx context.Context, c Command) (int, error) {
	status, err := m.run(ctx, c)
	if err != nil {
		return 0, m.explain(c, err)
	}
	return status, nil
}

func (m *Machine) run(ctx context.Context, c Command) (int, error) {
	err := frame.WriteJSON(m.port, frame.Run, frame.Command{Args: c.Args, Dir: c.Dir, Env: c.Env})
	if err == nil {
		err = frame.Write(m.port, frame.Input, nil)
	}
	if _, ofPort := errors.AsType[*net.OpError](err); err != nil && !ofPort {
		return 0, err
	}
	return m.forward(ctx, c) // if the guest did not read the command, its error says why
}

// explain adds the name of the command and the console's last lines to an error.
func (m *Machine) explain(c Command, err error) error {
	return fmt.Errorf("%s in the VM: %w\n%s", c.Args[0], err, m.console.tail())
}

// forward forwards the command's output until the command has ended, and returns its exit status.
func (m *Machine) forward(ctx context.Context, c Command) (int, error) {
	for {
		f, err := m.next(ctx)
		if err != nil {
			return 0, err
		}
		switch f.kind {
		case frame.Output:
			_, err = c.Stdout.Write(f.payload)
		case frame.Errors:
			_, err = c.Stderr.Write(f.payload)
		case frame.Exit:
			var result frame.Result
			if err := frame.Decode(f.kind, f.payload, &result); err != nil {
				return 0, err
			}
			if result.Reason != "" {
				fmt.Fprintf(c.Stderr, "%s: %s\n", c.Args[0], result.Reason)
			}
			return result.Status, nil
		default:
			err = fmt.Errorf("the guest sent frame %q while a command runs", f.kind)
		}
		if err != nil {
			return 0, err
		}
	}
}
