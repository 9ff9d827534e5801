//go:build interop

package tensorflow_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// process is a Python process of the test.
type process struct {
	pid    int
	stdin  io.WriteCloser
	stdout *bufio.Reader
	mu     sync.Mutex // guards stderr
	stderr bytes.Buffer
	killed bool
	ended  sync.WaitGroup
}

// knownTypes has the types that this TensorFlow knows: an old one lacks some.
var knownTypes = sync.OnceValues(func() (map[tensor.DType]bool, error) {
	out, err := exec.Command(os.Getenv("TENSORFLOW_PYTHON"), "-c", "from tensorflow.core.framework import types_pb2; print(*types_pb2.DataType.values())").Output()
	if err != nil {
		return nil, fmt.Errorf("ask TensorFlow for its types: %w", err)
	}
	known := map[tensor.DType]bool{}
	for field := range strings.FieldsSeq(string(out)) {
		n, err := strconv.Atoi(field)
		if err != nil {
			return nil, err
		}
		known[tensor.DType(n)] = true
	}
	return known, nil
})

// plainTypes returns the types of plain elements that Tryst and this TensorFlow know.
func plainTypes(t testing.TB) []tensor.DType {
	t.Helper()
	known, err := knownTypes()
	if err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(tensortest.PlainDTypes(), func(d tensor.DType) bool { return !known[d] })
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
	from, err := theStarter()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{}
	pipe := func() (r, w *os.File) {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		return r, w
	}
	stdin, toStdin := pipe()
	ofStdout, stdout := pipe()
	ofStderr, stderr := pipe()
	p.stdin, p.stdout = toStdin, bufio.NewReader(ofStdout)
	p.pid, err = from.start(args, stdin, stdout, stderr)
	stdin.Close()
	stdout.Close()
	stderr.Close()
	p.ended.Go(func() { // only the process has the other side of its standard error
		_, _ = io.Copy(p, ofStderr)
		ofStderr.Close()
	})
	t.Cleanup(func() {
		p.stop()
		ofStdout.Close()
		if t.Failed() {
			p.mu.Lock()
			defer p.mu.Unlock()
			t.Logf("%s wrote:\n%s", args[0], &p.stderr)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Write collects the process's stderr.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stderr.Write(b)
}

// stop closes the standard input of the process, and waits until it has ended.
func (p *process) stop() {
	p.stdin.Close()
	p.ended.Wait()
}

// kill kills the process.
func (p *process) kill() {
	p.killed = true
	_ = syscall.Kill(p.pid, syscall.SIGKILL)
	p.stop()
}
