package vm

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/term"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
)

// RunOnTerminal is Run with the caller's terminal as input and output. One of its goroutines outlives
// it until the next input, since a read of the terminal cannot be interrupted. So the process should
// end soon after.
func (m *Machine) RunOnTerminal(ctx context.Context, c Command, terminal *os.File) (int, error) {
	fd := int(terminal.Fd())
	size, err := sizeOf(fd)
	if err != nil {
		return 0, err
	}
	before, err := term.MakeRaw(fd)
	if err != nil {
		return 0, fmt.Errorf("terminal: %w", err)
	}
	defer term.Restore(fd, before) //nolint:errcheck // it fails only if the terminal is gone

	if err := frame.WriteJSON(m.port, frame.Run, frame.Command{Args: c.Args, Dir: c.Dir, Env: c.Env, Terminal: &size}); err != nil {
		return 0, err
	}
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	ended := make(chan struct{})
	defer close(ended)
	defer signal.Stop(resized)
	go func() {
		for {
			select {
			case <-resized:
				if size, err := sizeOf(fd); err == nil {
					_ = frame.WriteJSON(m.port, frame.Size, size)
				}
			case <-ended:
				return
			}
		}
	}()
	go func() {
		buf := make([]byte, terminalBuffer)
		for {
			n, err := terminal.Read(buf)
			if n > 0 {
				err = frame.Write(m.port, frame.Input, buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	status, err := m.forward(ctx, c)
	if err != nil {
		return 0, m.explain(c, err)
	}
	return status, nil
}

func sizeOf(fd int) (frame.WindowSize, error) {
	columns, rows, err := term.GetSize(fd)
	if err != nil {
		return frame.WindowSize{}, fmt.Errorf("terminal: %w", err)
	}
	return frame.WindowSize{Rows: uint16(rows), Columns: uint16(columns)}, nil
}
