package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/tryst-rdma/tryst/status"
)

// child is the first process's handle of the second one.
type child struct {
	hello
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	answers chan []byte // lines of its output; closed at the end
	stderr  tail
	dead    chan struct{}           // closed when the process has ended
	lost    context.CancelCauseFunc // cancels the context that startChild returned
	ending  sync.Once
}

// startChild starts the second process. The context that it returns ends when
// that process does.
func startChild(ctx context.Context, command func(context.Context) *exec.Cmd, s setup) (*child, context.Context, error) {
	ctx, lost := context.WithCancelCause(ctx)
	c := &child{
		cmd:     command(context.WithoutCancel(ctx)), // close ends it, in order
		answers: make(chan []byte, 1),
		dead:    make(chan struct{}),
		lost:    lost,
	}
	fail := func(err error) (*child, context.Context, error) {
		lost(nil)
		return nil, nil, status.Errorf(status.Unavailable, "cannot start the second process: %w", err)
	}
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return fail(err)
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return fail(err)
	}
	c.cmd.Stderr = &c.stderr
	if err := c.cmd.Start(); err != nil {
		return fail(err)
	}
	go c.watch(stdout)
	if err := c.ask(ctx, startWait, s, &c.hello); err != nil {
		c.close()
		return nil, nil, err
	}
	return c, ctx, nil
}

// watch reads the output until the process ends.
func (c *child) watch(stdout io.Reader) {
	defer close(c.dead)
	d := json.NewDecoder(stdout)
	for {
		var line json.RawMessage
		if err := d.Decode(&line); err != nil {
			if !errors.Is(err, io.EOF) {
				_ = c.cmd.Process.Kill() // its output is not of the expected form
			}
			break
		}
		c.answers <- line // ask receives each
	}
	close(c.answers)
	err := c.cmd.Wait()
	why := "it wrote no error"
	switch words := c.stderr.String(); {
	case words != "":
		why = words
	case err != nil:
		why = err.Error()
	}
	c.lost(status.Errorf(status.Unavailable, "the second process ended: %s", why))
}

// ask writes one line to the process and reads the response.
func (c *child) ask(ctx context.Context, wait time.Duration, question, answer any) error {
	if err := json.NewEncoder(c.stdin).Encode(question); err != nil {
		<-c.dead // only the end of the process closes the pipe
		return context.Cause(ctx)
	}
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	select {
	case line, ok := <-c.answers:
		if !ok {
			<-c.dead
			return context.Cause(ctx)
		}
		if err := json.Unmarshal(line, answer); err != nil {
			return status.Errorf(status.Internal, "the second process answered %q: %w", line, err)
		}
		return nil
	case <-timeout.C:
		return status.Errorf(status.DeadlineExceeded, "the second process did not answer for %v", wait)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// obey makes the process execute a command.
func (c *child) obey(ctx context.Context, cmd command) (state, error) {
	var s state
	if err := c.ask(ctx, answerWait, cmd, &s); err != nil {
		return s, err
	}
	if s.Error != "" {
		return s, status.Errorf(status.Internal, "the second process: %s", s.Error)
	}
	return s, nil
}

// close ends the process: gracefully, and after stopWait by force.
func (c *child) close() {
	c.ending.Do(func() {
		_ = c.stdin.Close() // it ends at the end of its input
		timer := time.AfterFunc(stopWait, func() { _ = c.cmd.Process.Kill() })
		defer timer.Stop()
		for open := true; open; { // a late response
			_, open = <-c.answers
		}
		<-c.dead
	})
}

// tail keeps the first line that is written to it. In the output of a panic that is the
// line with the reason.
type tail struct {
	mu   sync.Mutex // guards line
	line []byte
}

// maxLine bounds the kept line, in bytes.
const maxLine = 1 << 10

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if room := maxLine - len(t.line); room > 0 && !bytes.ContainsRune(t.line, '\n') {
		t.line = append(t.line, b[:min(room, len(b))]...)
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	line, _, _ := strings.Cut(strings.TrimLeft(string(t.line), "\n"), "\n")
	return strings.TrimSpace(line)
}
