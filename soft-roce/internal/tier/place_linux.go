package tier

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"time"

	softroce "github.com/tryst-rdma/tryst/internal/softroce"
	"github.com/tryst-rdma/tryst/soft-roce/internal/vm"
)

// virtual is the VM. It boots for the first command, and again after a command that crashed it.
type virtual struct {
	config  vm.Config
	machine *vm.Machine // nil when no VM runs
}

// InMachine returns a Place that is a VM.
func InMachine(c vm.Config) Place { return &virtual{config: c} }

func (v *virtual) Run(ctx context.Context, c vm.Command) (int, error) {
	if v.machine == nil {
		start := time.Now()
		m, err := vm.Boot(ctx, v.config)
		if err != nil {
			return 0, err
		}
		fmt.Fprintf(v.config.Log, "the VM is up (%s, %.1f s)\n", m.Accelerator, time.Since(start).Seconds())
		v.machine = m
	}
	status, err := v.machine.Run(ctx, c)
	if err != nil {
		_ = v.Close()
	}
	return status, err
}

func (v *virtual) Close() error {
	if v.machine != nil {
		v.machine.Close()
		v.machine = nil
	}
	return nil
}

// The guest has the same values, so that a command ends on this machine as it does in the VM.
const (
	// drain is how long a process that the command left running may keep its output open after
	// the command has ended.
	drain = 2 * time.Second

	// notStarted is the status of a command that could not be started. The status of a command
	// that was killed is signalled plus the signal's number. Both are as in a shell.
	notStarted = 127
	signalled  = 128
)

// native is this machine.
type native struct {
	added bool // whether Close removes the pair
}

// OnThisMachine returns a Place that is this machine. It adds the pair of devices, unless that
// exists already; Close removes a pair that it has added.
func OnThisMachine(ctx context.Context) (Place, error) {
	pair := softroce.DefaultPair()
	links, err := softroce.Devices()
	if err != nil {
		return nil, err
	}
	if slices.Contains(links, pair[0].Device) && slices.Contains(links, pair[1].Device) {
		return native{}, nil
	}
	if err := softroce.SetupPair(ctx, pair); err != nil {
		return nil, err
	}
	return native{added: true}, nil
}

func (native) Run(ctx context.Context, c vm.Command) (int, error) {
	cmd := exec.CommandContext(ctx, c.Args[0], c.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = c.Dir, c.Env, c.Stdout, c.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = drain
	err := cmd.Run()
	started := cmd.Process != nil
	if started {
		_ = cmd.Cancel() // kills what it left running; an error if there is nothing
	}
	exit, exited := errors.AsType[*exec.ExitError](err)
	switch {
	case err == nil:
		return 0, nil
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case !started:
		fmt.Fprintf(c.Stderr, "%s: %v\n", c.Args[0], err)
		return notStarted, nil
	case errors.Is(err, exec.ErrWaitDelay): // the command itself succeeded
		fmt.Fprintf(c.Stderr, "%s: a process that it left running kept its output open and was killed\n", c.Args[0])
		return 0, nil
	case !exited: // its output could not be written
		return 0, err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		fmt.Fprintf(c.Stderr, "%s: signal: %v\n", c.Args[0], ws.Signal())
		return signalled + int(ws.Signal()), nil
	}
	return exit.ExitCode(), nil
}

func (n native) Close() error {
	if !n.added {
		return nil
	}
	return softroce.RemovePair(softroce.DefaultPair())
}
