package guest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
)

const (
	// drain is how long a process that the command left running may keep its output open after the
	// command has ended.
	drain = 2 * time.Second

	// notStarted is the status of a command that could not be started. The status of a command that
	// was killed is signalled plus the signal's number. Both are as in a shell.
	notStarted = 127
	signalled  = 128
)

// running is a command between its start and its end.
type running struct {
	cmd      *exec.Cmd
	input    *queue
	terminal *os.File // nil without one
	ended    chan frame.Result
}

// begin starts the command in its own session, and forwards its output to port. The command owns two
// goroutines: one writes its input; the other waits for it and sends the result to ended, and then
// nothing of the command uses port any more.
func begin(c frame.Command, port io.Writer) (*running, error) {
	if len(c.Args) == 0 {
		return nil, errors.New("no command given")
	}
	// For a missing directory the kernel's error would name the program.
	if _, err := os.Stat(c.Dir); c.Dir != "" && err != nil {
		return nil, err
	}
	path, err := lookPath(c.Args[0], c.Env)
	if err != nil {
		return nil, err
	}
	r := &running{
		cmd:   &exec.Cmd{Path: path, Args: c.Args, Dir: c.Dir, Env: c.Env, WaitDelay: drain, SysProcAttr: &syscall.SysProcAttr{Setsid: true}},
		input: newQueue(),
		ended: make(chan frame.Result, 1),
	}
	if c.Terminal != nil {
		return r, r.onTerminal(*c.Terminal, port)
	}
	// A pipe in place of r.input itself, since Wait would wait for the end of r.input.
	in, feed, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer in.Close()
	r.cmd.Stdin = in
	r.cmd.Stdout = output{frame.Output, port}
	r.cmd.Stderr = output{frame.Errors, port}
	if err := r.cmd.Start(); err != nil {
		return nil, errors.Join(err, feed.Close())
	}
	go func() {
		_, _ = io.Copy(feed, r.input) // ends with the input, or with EPIPE when the command has ended
		_ = feed.Close()
	}()
	go func() {
		res := result(r.cmd.Wait())
		r.input.end()
		r.ended <- res
	}()
	return r, nil
}

// onTerminal starts the command on a new pseudo-terminal (pty(7)).
func (r *running) onTerminal(size frame.WindowSize, port io.Writer) error {
	master, slave, err := openTerminal()
	if err != nil {
		return err
	}
	defer slave.Close()
	r.terminal = master
	if err := r.resize(size); err != nil {
		return errors.Join(err, master.Close())
	}
	r.cmd.Stdin, r.cmd.Stdout, r.cmd.Stderr = slave, slave, slave
	r.cmd.SysProcAttr.Setctty = true // the child's descriptor 0
	if err := r.cmd.Start(); err != nil {
		return errors.Join(err, master.Close())
	}
	copied := make(chan struct{})
	go func() { // ends with EIO when the last process has closed the terminal
		_, _ = io.Copy(output{frame.Output, port}, master)
		close(copied)
	}()
	go func() { _, _ = io.Copy(master, r.input) }() // ends with the input, below
	go func() {
		res := result(r.cmd.Wait())
		select {
		case <-copied:
		case <-time.After(drain):
		}
		r.input.end()
		r.ended <- res
	}()
	return nil
}

// openTerminal opens a new pseudo-terminal.
func openTerminal() (master, slave *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	number, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		slave, err = os.OpenFile("/dev/pts/"+strconv.Itoa(int(number)), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, nil, errors.Join(err, master.Close())
	}
	return master, slave, nil
}

// resize sets the size of the command's terminal, if it has one.
func (r *running) resize(size frame.WindowSize) error {
	if r.terminal == nil {
		return nil
	}
	return unix.IoctlSetWinsize(int(r.terminal.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: size.Rows, Col: size.Columns})
}

// signal sends a signal to the command's process group. It is no error if that has ended.
func (r *running) signal(s syscall.Signal) error {
	if err := unix.Kill(-r.cmd.Process.Pid, s); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// result converts the error of Wait to a Result.
func result(err error) frame.Result {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return frame.Result{}
	case errors.Is(err, exec.ErrWaitDelay):
		return frame.Result{Reason: "a process that it left running kept its output open and was killed"}
	case !errors.As(err, &exit):
		return frame.Result{Status: notStarted, Reason: err.Error()}
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return frame.Result{Status: signalled + int(ws.Signal()), Reason: "signal: " + ws.Signal().String()}
	}
	return frame.Result{Status: exit.ExitCode()}
}

// lookPath finds a program in the PATH of env, as a shell does. The agent's own environment is empty.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	for _, e := range env {
		if dirs, ok := strings.CutPrefix(e, "PATH="); ok {
			for _, dir := range filepath.SplitList(dirs) {
				path := filepath.Join(dir, name)
				info, err := os.Stat(path) // Access alone also accepts directories
				if err == nil && !info.IsDir() && unix.Access(path, unix.X_OK) == nil {
					return path, nil
				}
			}
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// output writes the output of a command as frames of one kind.
type output struct {
	kind frame.Kind
	port io.Writer
}

func (o output) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), frame.MaxPayload)
		if err := frame.Write(o.port, o.kind, rest[:n]); err != nil {
			return len(p) - len(rest), err
		}
		rest = rest[n:]
	}
	return len(p), nil
}

// lockedWriter keeps frames of concurrent writers whole.
type lockedWriter struct {
	mu sync.Mutex // held for one Write
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

// queue buffers a command's input, so that the agent does not wait for the command to read it. It has
// no limit: it holds what a person types.
type queue struct {
	mu      sync.Mutex // protects the fields below
	arrived *sync.Cond // signalled at each change of them
	bytes   []byte
	ended   bool
}

func newQueue() *queue {
	q := &queue{}
	q.arrived = sync.NewCond(&q.mu)
	return q
}

// put adds to the input. An empty p ends the input.
func (q *queue) put(p []byte) {
	if len(p) == 0 {
		q.end()
		return
	}
	q.mu.Lock()
	q.bytes = append(q.bytes, p...)
	q.mu.Unlock()
	q.arrived.Signal()
}

func (q *queue) end() {
	q.mu.Lock()
	q.ended = true
	q.mu.Unlock()
	q.arrived.Broadcast()
}

// Read waits for input, or for its end.
func (q *queue) Read(p []byte) (int, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.bytes) == 0 {
		if q.ended {
			return 0, io.EOF
		}
		q.arrived.Wait()
	}
	n := copy(p, q.bytes)
	q.bytes = q.bytes[n:]
	return n, nil
}
