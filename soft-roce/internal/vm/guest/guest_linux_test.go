package guest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/tryst-rdma/tryst/soft-roce/internal/vm/internal/frame"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// session is a running agent, with the host's end of its port.
type session struct {
	t        *testing.T
	host     net.Conn
	cleanUps int // calls of agent.cleanUp
}

// startAgent starts an agent, which ends with the test.
func startAgent(t *testing.T) *session {
	t.Helper()
	host, port := net.Pipe()
	s := &session{t: t, host: host}
	a := &agent{port: &lockedWriter{w: port}, cleanUp: func() error { s.cleanUps++; return nil }}
	done := make(chan error, 1)
	go func() { done <- a.serve(port) }()
	t.Cleanup(func() {
		host.Close()
		if err := <-done; err != nil {
			t.Errorf("the agent ended with error %v", err)
		}
	})
	return s
}

// run runs a command and sends the frames of then after it. It returns the command's output and
// result.
func (s *session) run(c frame.Command, then ...func(io.Writer) error) (out, errs string, result frame.Result) {
	s.t.Helper()
	if c.Env == nil {
		c.Env = []string{"PATH=" + os.Getenv("PATH")}
	}
	if err := frame.WriteJSON(s.host, frame.Run, c); err != nil {
		s.t.Fatal(err)
	}
	sent := make(chan error, 1)
	go func() {
		var err error
		for _, f := range then {
			err = errors.Join(err, f(s.host))
		}
		sent <- err
	}()
	for {
		kind, payload, err := frame.Read(s.host)
		if err != nil {
			s.t.Fatal(err)
		}
		switch kind {
		case frame.Output:
			out += string(payload)
		case frame.Errors:
			errs += string(payload)
		case frame.Exit:
			if err := frame.Decode(kind, payload, &result); err != nil {
				s.t.Fatal(err)
			}
			if err := <-sent; err != nil {
				s.t.Fatal(err)
			}
			return out, errs, result
		default:
			s.t.Fatalf("the agent sent frame %q, want output or Exit", kind)
		}
	}
}

func bash(script string) frame.Command { return frame.Command{Args: []string{"bash", "-c", script}} }

func input(text string) func(io.Writer) error {
	return func(w io.Writer) error { return frame.Write(w, frame.Input, []byte(text)) }
}

func TestCommands(t *testing.T) {
	s := startAgent(t)
	dir := t.TempDir()
	for _, tt := range []struct {
		name      string
		command   frame.Command
		then      []func(io.Writer) error
		out, errs string
		result    frame.Result
	}{
		{"status", bash("exit 7"), nil, "", "", frame.Result{Status: 7}},
		{"output", bash("echo out; echo err >&2"), nil, "out\n", "err\n", frame.Result{}},
		{"signal", bash("kill -9 $$"), nil, "", "", frame.Result{Status: 137, Reason: "signal: killed"}},
		{"directory", frame.Command{Args: []string{"pwd", "-P"}, Dir: dir}, nil, dir + "\n", "", frame.Result{}},
		{"environment", frame.Command{Args: []string{"/usr/bin/env"}, Env: []string{"A=b c"}}, nil, "A=b c\n", "", frame.Result{}},
		{"input", bash("cat; echo end"), []func(io.Writer) error{input("some\n"), input("")}, "some\nend\n", "", frame.Result{}},
		{"no program", frame.Command{Args: []string{"no-such-program"}}, nil, "", "",
			frame.Result{Status: 127, Reason: `exec: "no-such-program": executable file not found in $PATH`}},
		{"no directory", frame.Command{Args: []string{"true"}, Dir: dir + "/none"}, nil, "", "",
			frame.Result{Status: 127, Reason: "stat " + dir + "/none: no such file or directory"}},
		{"no arguments", frame.Command{}, nil, "", "", frame.Result{Status: 127, Reason: "no command given"}},
		{"a signal from the host", bash("trap 'echo caught; exit 4' TERM; echo ready; read; exit 5"), []func(io.Writer) error{
			func(w io.Writer) error { return frame.Write(w, frame.Signal, []byte{9}) },
		}, "", "", frame.Result{Status: 137, Reason: "signal: killed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out, errs, result := s.run(tt.command, tt.then...)
			if tt.name == "a signal from the host" {
				out = "" // the signal may come before the command has printed
			}
			if out != tt.out || errs != tt.errs || result != tt.result {
				t.Errorf("output %q, errors %q, %+v; want %q, %q, %+v", out, errs, result, tt.out, tt.errs, tt.result)
			}
		})
	}
	if want := 7; s.cleanUps != want { // one for each command that started
		t.Errorf("cleanUp was called %d times, want %d", s.cleanUps, want)
	}
}

// As in a shell, a directory with the program's name is not a program.
func TestLookPathSkipsDirectories(t *testing.T) {
	first, second := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(first, "prog"), 0o755); err != nil {
		t.Fatal(err)
	}
	want := filepath.Join(second, "prog")
	if err := os.WriteFile(want, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := lookPath("prog", []string{"PATH=" + first + ":" + second}); got != want || err != nil {
		t.Errorf("got %q, error %v, want %q", got, err, want)
	}
	if got, err := lookPath("prog", []string{"PATH=" + first}); err == nil {
		t.Errorf("got the directory %q, want an error", got)
	}
}

// Output that is longer than a frame arrives whole, from both streams.
func TestLongOutput(t *testing.T) {
	s := startAgent(t)
	out, errs, result := s.run(bash("head -c 1000000 /dev/zero; head -c 600000 /dev/zero >&2"))
	if len(out) != 1000000 || len(errs) != 600000 || result.Status != 0 {
		t.Errorf("got %d and %d bytes, %+v; want 1000000 and 600000, status 0", len(out), len(errs), result)
	}
	var port bytes.Buffer
	n, err := output{frame.Output, &port}.Write(make([]byte, frame.MaxPayload+1))
	if n != frame.MaxPayload+1 || err != nil || port.Len() != frame.MaxPayload+1+2*5 {
		t.Errorf("Write took %d bytes and wrote %d, error %v; want all in two frames", n, port.Len(), err)
	}
}

// A process that a command leaves running, with the command's output open, does not delay the
// result.
func TestLeftoverProcessDoesNotDelayTheResult(t *testing.T) {
	s := startAgent(t)
	out, _, result := s.run(bash("sleep 30 & echo $!"))
	if result.Status != 0 || !strings.Contains(result.Reason, "left running") {
		t.Errorf("got %+v, want status 0 and a note on the process", result)
	}
	pid := strings.TrimSpace(out)
	if _, _, result := s.run(bash("kill " + pid)); result.Status != 0 { // in the guest cleanUp kills it
		t.Errorf("kill of the process: got %+v, want status 0", result)
	}
}

func TestTerminal(t *testing.T) {
	if _, err := os.Stat("/dev/ptmx"); err != nil {
		t.Skip("no pseudo-terminals here:", err)
	}
	s := startAgent(t)
	c := bash(`test -t 0 && test -t 1 && test -t 2 && stty size; read x; stty size; echo "got $x"`)
	c.Terminal = &frame.WindowSize{Rows: 11, Columns: 22}
	out, errs, result := s.run(c,
		func(w io.Writer) error {
			return frame.WriteJSON(w, frame.Size, frame.WindowSize{Rows: 33, Columns: 44})
		},
		input("word\r"))
	if errs != "" || result.Status != 0 || !strings.Contains(out, "33 44\r\n") || !strings.Contains(out, "got word\r\n") {
		t.Errorf("output %q, errors %q, %+v; want the new size, the input and status 0", out, errs, result)
	}
}

func TestInvalidFramesEndTheAgent(t *testing.T) {
	for name, frames := range map[string]func(io.Writer) error{
		"two commands": func(w io.Writer) error {
			c := frame.Command{Args: []string{"/bin/cat"}}
			return errors.Join(frame.WriteJSON(w, frame.Run, c), frame.WriteJSON(w, frame.Run, c))
		},
		"invalid JSON": func(w io.Writer) error { return frame.Write(w, frame.Run, []byte("{")) },
		"unknown kind": func(w io.Writer) error {
			_, err := io.WriteString(w, "GET / HTTP/1.1\r\n\r\n")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			host, port := net.Pipe()
			defer host.Close()
			a := &agent{port: &lockedWriter{w: io.Discard}, cleanUp: func() error { return nil }}
			go func() { _ = frames(host) }()
			if err := a.serve(port); err == nil {
				t.Error("serve returned no error")
			}
			_ = port.Close()
			if a.running != nil {
				a.running.input.end()
				<-a.running.ended
			}
		})
	}
}

func TestEmptyDirsDoNotHideTheShare(t *testing.T) {
	for share, want := range map[string][]string{
		"/home/me/tryst/build": {"/run", "/tmp"},
		"/tmp/clone/build":     {"/run"},
		"/run/ci/build":        {"/tmp"},
		"/tmpfoo/build":        {"/run", "/tmp"},
	} {
		if got := emptyDirs(share); !slices.Equal(got, want) {
			t.Errorf("emptyDirs(%s) = %v, want %v", share, got, want)
		}
	}
}

// put of the queue does not block, and Read returns everything before the end.
func TestQueue(t *testing.T) {
	q := newQueue()
	for range 1000 {
		q.put(make([]byte, 1000))
	}
	q.put(nil)
	if n, err := io.Copy(io.Discard, q); n != 1000*1000 || err != nil {
		t.Errorf("read %d bytes, error %v, want %d", n, err, 1000*1000)
	}
}

// Main runs nothing for other arguments, and no init outside of process 1.
func TestMainRunsOnlyInTheGuest(t *testing.T) {
	for _, args := range [][]string{{"soft-roce"}, {"soft-roce", "vm"}, {"soft-roce", "guest-init"}, {"soft-roce", "guest-agent", "x"}} {
		if Main(args) {
			t.Errorf("Main(%v) = true, want false", args)
		}
	}
}
