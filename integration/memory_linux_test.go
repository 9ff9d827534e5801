package integration

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// testTimeout limits how long a process of the test may run.
const testTimeout = 2 * time.Minute

// TestPeakMemoryOfOneGibibyte: a process that sends or receives a tensor of 1 GiB needs the memory
// of the tensor and at most 64 MiB more. With -short the tensor has 256 MiB.
func TestPeakMemoryOfOneGibibyte(t *testing.T) {
	const overhead = 64 << 20
	size := 1 << 30
	if testing.Short() {
		size = 256 << 20
	}
	program := buildPeer(t)
	sender := startPeer(t, program, "send", strconv.Itoa(size))
	address := sender.readLine()
	sent := sender.readLine()
	sender.expect("done")
	receiver := startPeer(t, program, "recv", strconv.Itoa(size), address)
	if got := receiver.readLine(); got != sent {
		t.Errorf("the received content has digest %s, want %s as sent", got, sent)
	}
	receiver.expect("done")
	for name, p := range map[string]*peer{"sender": sender, "receiver": receiver} {
		peak := p.peakMemory()
		t.Logf("%s: peak of %.1f MiB more than the tensor", name, float64(peak-int64(size))/(1<<20))
		if peak > int64(size+overhead) {
			t.Errorf("%s: peak of %d bytes, %d more than the tensor, want at most %d more", name, peak, peak-int64(size), overhead)
		}
	}
	receiver.end()
	sender.end()
}

// buildPeer builds internal/peer without the race detector, whose memory must not count.
func buildPeer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "peer")
	tool := "go"
	if name := os.Getenv("GO"); name != "" { // set by make
		tool = name
	}
	cmd := exec.Command(tool, "build", "-race=false", "-o", program, "./internal/peer")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return program
}

// peer is a process of internal/peer.
type peer struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

// startPeer starts a process. It is killed if it still runs when the test ends.
func startPeer(t *testing.T, program string, args ...string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	p := &peer{t: t, cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Stderr = os.Stderr
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(stdout)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = p.cmd.Wait() // an error if it was waited for before, or was killed
	})
	return p
}

// readLine returns the next line that the process writes.
func (p *peer) readLine() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("%v ended its output, want another line", p.cmd)
	}
	return p.lines.Text()
}

func (p *peer) expect(line string) {
	p.t.Helper()
	if got := p.readLine(); got != line {
		p.t.Fatalf("%v wrote %q, want %q", p.cmd, got, line)
	}
}

// end ends the process, which must exit with status 0.
func (p *peer) end() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v: %v", p.cmd, err)
	}
}

// peakMemory returns the largest resident memory of the process until now, in bytes: VmHWM of
// proc_pid_status(5).
func (p *peer) peakMemory() int64 {
	p.t.Helper()
	path := fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)
	b, err := os.ReadFile(path)
	if err != nil {
		p.t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				p.t.Fatalf("%s: %q: %v", path, line, err)
			}
			return kib << 10
		}
	}
	p.t.Fatalf("%s has no VmHWM", path)
	return 0
}
