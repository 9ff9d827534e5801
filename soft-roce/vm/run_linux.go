package vm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/tryst-rdma/tryst/soft-roce/vm/internal/frame"
	"github.com/tryst-rdma/tryst/soft-roce/vm/internal/layout"
)

// GuestName is the guest's host name, by which a program can tell that it runs in one.
const GuestName = layout.GuestName

// Command is what Run runs.
type Command struct {
	Args []string // the program and its arguments
	Dir  string   // absolute
	// Env is the whole environment, NAME=value; see [Environment].
	Env []string
	// Stdout and Stderr get the command's output as it arrives. Its input is empty.
	Stdout, Stderr io.Writer
}

// Environment is an environment for commands that does not depend on who starts the VM. TRYST_TEST_DEVICES names the two devices.
func Environment() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "USER=root", "LANG=C.UTF-8",
		"TRYST_TEST_DEVICES=rxe0,rxe1",
	}
}

// Run runs a command and returns its exit status: 128 and more for a signal, 127 when it could not be started, as a shell says it. What the
// command leaves running is killed. With an error, which ends with the console's last lines, the guest is of no more use.
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
	return m.listen(ctx, c) // It says why a guest is gone that does not even read its command.
}

// explain adds to an error what ran and what the guest said last.
func (m *Machine) explain(c Command, err error) error {
	return fmt.Errorf("%s in the VM: %w\n%s", c.Args[0], err, m.console.tail())
}

// listen passes on what the command says until it has ended.
func (m *Machine) listen(ctx context.Context, c Command) (int, error) {
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
			err = fmt.Errorf("the guest says %q while a command runs", f.kind)
		}
		if err != nil {
			return 0, err
		}
	}
}
