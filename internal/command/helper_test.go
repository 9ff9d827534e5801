package command

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/safetensors"
)

// patience bounds what must not hang.
const patience = time.Minute

// result is what a command did.
type result struct {
	code     int
	out, err string
}

// tryst runs a command line in this process, with nothing in its environment.
func tryst(t *testing.T, args ...string) result {
	t.Helper()
	return trystEnv(t, []string{}, args...)
}

func trystEnv(t *testing.T, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, err bytes.Buffer
	code := run(ctx, streams{out: &out, err: &err, env: env}, args)
	if ctx.Err() != nil {
		t.Fatalf("tryst %v: hung", args)
	}
	return result{code, out.String(), err.String()}
}

// did checks that a command did what it was asked, and returns its results.
func did(t *testing.T, r result) string {
	t.Helper()
	if r.code != exitDone {
		t.Fatalf("exit status %d\n%s%s", r.code, r.out, r.err)
	}
	return r.out
}

// failed checks that a command failed with one line that has all the texts,
// and with no results. Before the line there may be progress, and the log of a
// server.
func failed(t *testing.T, r result, code int, texts ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit status %d, want %d", r.code, code)
	}
	if r.out != "" {
		t.Errorf("results:\n%s", r.out)
	}
	text := regexp.MustCompile(`(?m)^((pull|gen): .*%.*)\n`).ReplaceAllString(r.err, "")
	if strings.Contains(text, "\ntryst serve: ") {
		text = regexp.MustCompile(`(?m)^time=.* level=INFO .*\n`).ReplaceAllString(text, "")
	}
	if strings.Count(text, "\n") != 1 || !strings.HasSuffix(text, "\n") || !strings.HasPrefix(text, "tryst") {
		t.Errorf("not one line of tryst:\n%s", text)
	}
	for _, want := range texts {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in: %s", want, text)
		}
	}
	for _, not := range []string{"goroutine ", "panic", "Usage:", "InvalidArgument", "NotFound", "Unavailable", "%!"} {
		if strings.Contains(text, not) {
			t.Errorf("%q in: %s", not, text)
		}
	}
}

// generate makes a small checkpoint.
func generate(t *testing.T, args ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tiny.safetensors")
	did(t, tryst(t, append([]string{"gen", "--model", "tiny", "--out", path}, args...)...))
	return path
}

// parts is how many tensors large writes, of partBytes each.
const (
	parts     = 32
	partBytes = 1 << 20
)

// large makes a checkpoint that takes more than one read of a socket.
func large(t *testing.T) string {
	t.Helper()
	shape, err := tensor.NewShape(partBytes)
	if err != nil {
		t.Fatal(err)
	}
	var specs []safetensors.Spec
	for i := range parts {
		specs = append(specs, safetensors.Spec{Name: fmt.Sprintf("part.%02d", i), DType: tensor.Uint8, Shape: shape})
	}
	path := filepath.Join(t.TempDir(), "large.safetensors")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := safetensors.NewWriter(f, specs, nil)
	if err != nil {
		t.Fatal(err)
	}
	info := w.Tensors()
	if err := f.Truncate(info[len(info)-1].Offset + partBytes); err != nil { // all zeros
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// serve runs a server in this process until the test ends, checks then that it
// stopped gracefully, and returns its address.
func serve(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancelCause(context.Background())
	said := newLog()
	done := make(chan result, 1)
	go func() {
		var out bytes.Buffer
		code := run(ctx, streams{out: &out, err: said, env: []string{}}, append([]string{"serve", "--listen", "127.0.0.1:0"}, args...))
		said.end()
		done <- result{code, out.String(), said.String()}
	}()
	t.Cleanup(func() {
		cancel(errInterrupted)
		if r := <-done; r.code != exitDone || r.out != "" {
			t.Errorf("serve: exit status %d\n%s%s", r.code, r.out, r.err)
		}
	})
	return said.until(t, serving)
}

// serving is what a server logs when it is ready, with its address; stopping
// what it logs when it was told to stop.
var (
	serving  = regexp.MustCompile(`msg=serving address=(\S+)`)
	stopping = regexp.MustCompile(`msg=stopping address=(\S+)`)
)

// log is what a server says, while it says it.
type log struct {
	more  chan struct{} // there may be more than before
	ended chan struct{} // closed by end

	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func newLog() *log { return &log{more: make(chan struct{}, 1), ended: make(chan struct{})} }

func (l *log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.text.Write(b)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// end says that nothing follows.
func (l *log) end() { close(l.ended) }

// until waits for a line that matches and returns what is in its parentheses.
func (l *log) until(t *testing.T, wanted *regexp.Regexp) string {
	t.Helper()
	late := time.After(patience)
	for {
		if m := wanted.FindStringSubmatch(l.String()); m != nil {
			return m[1]
		}
		select {
		case <-l.more:
		case <-l.ended:
			t.Fatalf("it ended without %v:\n%s", wanted, l)
		case <-late:
			t.Fatalf("no %v in:\n%s", wanted, l)
		}
	}
}

// process is the command in a process of its own.
type process struct {
	*exec.Cmd
	out bytes.Buffer // read after end
	err *log
}

// start begins a process. What is still there of it at the end of the test is
// killed.
func start(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	p := command(t, env, args...)
	p.begin(t)
	return p
}

// command returns a process that has not begun.
func command(t *testing.T, env []string, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.Command(self, args...), err: newLog()}
	p.Env = append([]string{asCommand + "=1"}, env...)
	p.Stdout, p.Stderr = &p.out, p.err
	return p
}

// begin starts a process.
func (p *process) begin(t *testing.T) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill() // an error when it has ended
		_ = p.Wait()         // an error when it has been waited for
	})
}

// end waits for the end of a process.
func (p *process) end(t *testing.T) result {
	t.Helper()
	hung := time.AfterFunc(patience, func() { _ = p.Process.Kill() })
	defer hung.Stop()
	_ = p.Wait() // the status tells
	return result{p.ProcessState.ExitCode(), p.out.String(), p.err.String()}
}

// proxy lies between a puller and a server. When the server has sent so many
// bytes it calls then, and lets nothing more through but the end of the
// connection: the puller is in the middle of its pull. It ends with the test.
func proxy(t *testing.T, server string, bytes int64, then func()) string {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var (
		once  sync.Once
		group sync.WaitGroup
		mu    sync.Mutex
		conns []net.Conn
	)
	keep := func(c net.Conn) net.Conn {
		mu.Lock()
		defer mu.Unlock()
		conns = append(conns, c)
		return c
	}
	group.Go(func() {
		for {
			in, err := lis.Accept()
			if err != nil {
				return
			}
			keep(in)
			out, err := net.Dial("tcp", server)
			if err != nil {
				in.Close()
				continue
			}
			keep(out)
			group.Go(func() { _, _ = io.Copy(out, in) })
			group.Go(func() {
				if _, err := io.CopyN(in, out, bytes); err == nil {
					once.Do(then)
				}
				_, _ = io.Copy(io.Discard, out)
				in.Close()
			})
		}
	})
	t.Cleanup(func() {
		lis.Close()
		mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		mu.Unlock()
		group.Wait()
	})
	return lis.Addr().String()
}

// partLeft checks that a pull that failed has left what had come of x.safetensors.
func partLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 || left[0].Name() != "x.safetensors.part" || left[1].Name() != "x.safetensors.part.journal" {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// nothingLeft checks that a pull that failed has left nothing in its directory.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func same(t *testing.T, a, b string) {
	t.Helper()
	x, err := os.ReadFile(a)
	if err != nil {
		t.Fatal(err)
	}
	y, err := os.ReadFile(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(x, y) {
		t.Errorf("%s and %s differ", a, b)
	}
}
