package command

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/tryst-rdma/tryst/internal/transporttest"
)

// startPiped starts a process whose stderr is a pipe, and returns the end to read. With a true
// stdout the same pipe is stdout, too.
func startPiped(t *testing.T, stdout bool, args ...string) (*process, *os.File) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	t.Cleanup(func() { r.Close() })
	p := command(t, nil, args...)
	p.Stderr = w
	if stdout {
		p.Stdout = w
	}
	p.begin(t)
	return p, r
}

// TestServerOutlivesTheReaderOfItsLog: a log collector that goes away ends no server.
func TestServerOutlivesTheReaderOfItsLog(t *testing.T) {
	model := generate(t)
	p, stderr := startPiped(t, true, "serve", "--listen", "127.0.0.1:0", "--log-level", "debug", "--shutdown-timeout", "10s", model)
	lines, address := bufio.NewScanner(stderr), ""
	for address == "" && lines.Scan() {
		if m := serving.FindStringSubmatch(lines.Text()); m != nil {
			address = m[1]
		}
	}
	stderr.Close()
	for i := range 2 { // each pull makes log lines at the server
		out := filepath.Join(t.TempDir(), "x.safetensors")
		did(t, tryst(t, "pull", "--from", address, "--out", out, fmt.Sprintf("--inflight=%d", i+1)))
		same(t, model, out)
	}
	if err := p.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if r := p.end(t); r.code != exitDone { // "stopping" and "stopped" were written to nobody
		t.Errorf("exit status %d, want %d (%v)", r.code, exitDone, p.ProcessState)
	}
}

// TestPullOutlivesTheReaderOfItsProgress is tryst pull 2>&1 | head -1.
func TestPullOutlivesTheReaderOfItsProgress(t *testing.T) {
	model := large(t)
	address := serve(t, "--transport", "grpc", model)
	for _, stdout := range []bool{false, true} {
		t.Run(fmt.Sprintf("stdout too: %v", stdout), func(t *testing.T) {
			proxy := transporttest.NewProxy(t)
			proxy.SetTarget(address)
			held := proxy.HoldAfter(8 << 20)
			out := filepath.Join(t.TempDir(), "x.safetensors")
			p, stderr := startPiped(t, stdout, "pull", "--from", proxy.Addr(), "--out", out, "--log-level", "debug")
			<-held
			stderr.Close()
			proxy.Release()
			r := p.end(t)
			same(t, model, out)
			if want := map[bool]int{false: exitDone, true: exitPipe}[stdout]; r.code != want {
				t.Errorf("exit status %d, want %d (%v)", r.code, want, p.ProcessState)
			}
		})
	}
}

// TestReaderOfResultsGoesAway is tryst keys | true: the command ends without a message, with the
// status that a shell shows for SIGPIPE.
func TestReaderOfResultsGoesAway(t *testing.T) {
	for _, args := range [][]string{{"config"}, {"--help"}, {"completion", "bash"}, {"version", "--json"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		r.Close()
		p := command(t, nil, args...)
		p.Stdout = w
		p.begin(t)
		w.Close()
		if got := p.end(t); got.code != exitPipe || got.err != "" {
			t.Errorf("%v: exit status %d, want %d; stderr %q", args, got.code, exitPipe, got.err)
		}
	}
}
