package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"
)

// endWait is how long a process may take to end by itself.
const endWait = 10 * time.Second

// line is what a process has written, or why it ended.
type line struct {
	from *process
	text string
	err  error // at its end
}

// process is another process of this command.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer // it ends with its input
	ended  chan struct{}
	err    error // how it ended; after ended is closed
	killed bool
}

// startProcess starts this command with other arguments. Its lines are passed on until ctx ends.
func startProcess(ctx context.Context, lines chan<- line, args ...string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(context.WithoutCancel(ctx), self, args...), ended: make(chan struct{})}
	p.cmd.Stderr = os.Stderr
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.read(ctx, out, lines)
	return p, nil
}

// read passes on what the process writes until it ends.
func (p *process) read(ctx context.Context, out io.Reader, lines chan<- line) {
	in := bufio.NewReader(out)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			break
		}
		select {
		case lines <- line{from: p, text: text}:
		case <-ctx.Done():
		}
	}
	p.err = p.cmd.Wait()
	close(p.ended)
	err := p.err
	if err == nil {
		err = errors.New("it ended too early")
	}
	select {
	case lines <- line{from: p, err: fmt.Errorf("%v: %w", p.cmd.Args[1:], err)}:
	case <-ctx.Done():
	}
}

// kill gives the process no time for anything.
func (p *process) kill() error {
	p.killed = true
	return p.cmd.Process.Kill()
}

// end ends the process and returns how it ended. What it still writes is lost.
func (p *process) end() error {
	_ = p.stdin.Close() // a process that has ended has closed it
	timer := time.AfterFunc(endWait, func() { _ = p.cmd.Process.Kill() })
	defer timer.Stop()
	<-p.ended
	return p.err
}
