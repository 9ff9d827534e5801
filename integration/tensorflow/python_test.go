//go:build interop

package tensorflow_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// process is a Python process of the test.
type process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	mu     sync.Mutex // guards stderr
	stderr bytes.Buffer
	killed bool
	waited sync.Once
}

// startWorker starts worker.py and returns the address on which TensorFlow listens.
func startWorker(t testing.TB, args ...string) (*process, string) {
	t.Helper()
	p := startPython(t, append([]string{"worker.py"}, args...)...)
	for {
		line, err := p.stdout.ReadString('\n')
		if err != nil {
			t.Fatalf("worker.py ended before it was ready: %v", err)
		}
		if address, ok := strings.CutPrefix(line, "ready "); ok {
			return p, strings.TrimSpace(address)
		}
	}
}

func startPython(t testing.TB, args ...string) *process {
	t.Helper()
	python := os.Getenv("TENSORFLOW_PYTHON")
	if python == "" {
		t.Fatal("TENSORFLOW_PYTHON is not set to a Python with TensorFlow: run make interop")
	}
	p := &process{cmd: exec.Command(python, args...)}
	p.cmd.Stderr = p
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.stdin, p.stdout = stdin, bufio.NewReader(stdout)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("%s wrote:\n%s", args[0], &p.stderr)
		}
	})
	return p
}

// Write collects the process's stderr.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

func (p *process) stop() {
	p.waited.Do(func() {
		p.stdin.Close()
		_ = p.cmd.Wait()
	})
}

// kill kills the process.
func (p *process) kill() {
	p.killed = true
	_ = p.cmd.Process.Kill()
	p.stop()
}
