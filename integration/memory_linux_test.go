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

// patience bounds what must not hang.
const patience = 2 * time.Minute

// TestPeakMemoryOfOneGibibyte: to send and to receive a tensor of 1 GiB takes,
// in each of two processes, the tensor and at most 64 MiB beside it. With -short
// the tensor has 256 MiB.
func TestPeakMemoryOfOneGibibyte(t *testing.T) {
	const beside = 64 << 20
	size := 1 << 30
	if testing.Short() {
		size = 256 << 20
	}
	program := buildPeer(t)
	sender := startPeer(t, program, "send", strconv.Itoa(size))
	address := sender.says()
	sent := sender.says()
	sender.expect("done")
	receiver := startPeer(t, program, "recv", strconv.Itoa(size), address)
	if got := receiver.says(); got != sent {
		t.Errorf("the content that arrived has digest %s, what was sent %s", got, sent)
	}
	receiver.expect("done")
	for who, p := range map[string]*peer{"sender": sender, "receiver": receiver} {
		peak := p.peakMemory()
		t.Logf("%s: peak of %.1f MiB beside the tensor", who, float64(peak-int64(size))/(1<<20))
		if peak > int64(size+beside) {
			t.Errorf("%s: peak of %d bytes, %d beside the tensor; at most %d are allowed", who, peak, peak-int64(size), beside)
		}
	}
	receiver.end()
	sender.end()
}

// buildPeer builds internal/peer, whatever this test is built with: the race
// detector's own memory is not to be counted.
func buildPeer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "peer")
	tool := "go"
	if name := os.Getenv("GO"); name != "" { // the one that make uses
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

// startPeer starts a process, which is killed if it is still there when the test
// ends.
func startPeer(t *testing.T, program string, args ...string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
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
		_ = p.cmd.Wait() // it ended before, or was killed
	})
	return p
}

// says returns the next line that the process writes.
func (p *peer) says() string {
	p.t.Helper()
	if !p.lines.Scan() {
		p.t.Fatalf("%v ended early", p.cmd)
	}
	return p.lines.Text()
}

func (p *peer) expect(line string) {
	p.t.Helper()
	if got := p.says(); got != line {
		p.t.Fatalf("%v says %q, want %q", p.cmd, got, line)
	}
}

// end lets the process end, and checks that it did so well.
func (p *peer) end() {
	p.t.Helper()
	p.stdin.Close()
	if err := p.cmd.Wait(); err != nil {
		p.t.Errorf("%v: %v", p.cmd, err)
	}
}

// peakMemory returns the most physical memory that the process has had at a
// time, in bytes: VmHWM of proc_pid_status(5).
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
