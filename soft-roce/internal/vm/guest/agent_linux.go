package guest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
)

// agentPort is the descriptor that init gives the agent.
const agentPort = 3

// Agent runs the host's commands until the port ends. Its standard error is the VM's console.
func Agent() error {
	unix.CloseOnExec(agentPort)
	port := os.NewFile(agentPort, "port")
	defer port.Close()
	a := &agent{port: &lockedWriter{w: port}, cleanUp: cleanUp}
	if err := frame.Write(a.port, frame.Ready, nil); err != nil {
		return err
	}
	return a.serve(port)
}

// agent runs one command at a time.
type agent struct {
	port    *lockedWriter
	cleanUp func() error // called after each command
	running *running     // nil between commands
}

// cleanUp kills all processes except init and this one, which are those that a command left running.
// It syncs the file systems, since the host kills the VM without a shutdown.
func cleanUp() error {
	if err := unix.Kill(-1, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill the processes that the command left: %w", err)
	}
	unix.Sync()
	return nil
}

// serve handles frames until the host closes the port.
func (a *agent) serve(port io.Reader) error {
	type received struct {
		kind    frame.Kind
		payload []byte
		err     error
	}
	frames, returned := make(chan received), make(chan struct{})
	defer close(returned)
	go func() { // ends with the port, or at the next frame after serve has returned
		for {
			kind, payload, err := frame.Read(port)
			select {
			case frames <- received{kind, payload, err}:
			case <-returned:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		var ended <-chan frame.Result
		if a.running != nil {
			ended = a.running.ended
		}
		select {
		case f := <-frames:
			if errors.Is(f.err, io.EOF) {
				return nil
			}
			if f.err != nil {
				return f.err
			}
			if err := a.handle(f.kind, f.payload); err != nil {
				return err
			}
		case result := <-ended:
			a.running = nil
			if err := a.cleanUp(); err != nil {
				return err
			}
			if err := frame.WriteJSON(a.port, frame.Exit, result); err != nil {
				return err
			}
		}
	}
}

// handle acts on one frame.
func (a *agent) handle(kind frame.Kind, payload []byte) error {
	if kind == frame.Run {
		if a.running != nil {
			return errors.New("the host sent a second command while one runs")
		}
		var c frame.Command
		if err := frame.Decode(kind, payload, &c); err != nil {
			return err
		}
		r, err := begin(c, a.port)
		if err != nil {
			return frame.WriteJSON(a.port, frame.Exit, frame.Result{Status: notStarted, Reason: err.Error()})
		}
		a.running = r
		return nil
	}
	if a.running == nil {
		return nil // for a command that has just ended
	}
	switch kind {
	case frame.Input:
		a.running.input.put(payload)
		return nil
	case frame.Size:
		var size frame.WindowSize
		if err := frame.Decode(kind, payload, &size); err != nil {
			return err
		}
		return a.running.resize(size)
	case frame.Signal:
		if len(payload) != 1 {
			return fmt.Errorf("frame %q has %d bytes, want 1", kind, len(payload))
		}
		return a.running.signal(syscall.Signal(payload[0]))
	default:
		return fmt.Errorf("the host sent frame %q, which only the guest may send", kind)
	}
}
