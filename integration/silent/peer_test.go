//go:build linux

package silent

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// peerVariable is the variable of the environment that makes the test binary the peer: route, load and the two addresses.
const peerVariable = "TRYST_SILENT_PEER"

// The loads of a peer.
const (
	exchanging = "exchanging" // it sends values of 64 KiB to the observer and receives some
	idle       = "idle"       // it does nothing: the observer waits for a value that never comes
	asking     = "asking"     // it waits for a value of the observer that never comes
)

// config returns the settings of one of the two processes.
func config(route string, index int, addresses []string) tryst.Config {
	c := tryst.Config{Cluster: map[string][]string{"worker": addresses}, Task: name(index), Listen: addresses[index], Transport: "verbs", Provider: route}
	if route == "grpc" {
		c.Transport, c.Provider = "grpc", ""
	}
	return c
}

func name(index int) string { return fmt.Sprint("/job:worker/replica:0/task:", index) }

// runPeer is the peer. It ends with its standard input.
func runPeer(args []string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	s, err := tryst.Serve(ctx, config(args[0], 1, args[2:]))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(context.Background()) }()
	fmt.Println("ready")
	switch args[1] {
	case exchanging:
		return exchange(ctx, s, 1, 0)
	case asking:
		_, _ = s.Step(1).Recv(ctx, name(0), "never")
	}
	<-ctx.Done()
	return nil
}

// exchange sends values to the other process and receives its own, until ctx ends.
func exchange(ctx context.Context, s *tryst.Server, index, other int) error {
	x, err := tensor.FromSlice(tensor.Vector(1<<14), make([]float32, 1<<14))
	if err != nil {
		return err
	}
	defer x.Release()
	pause := time.NewTicker(time.Millisecond) // leaves the processor to others
	defer pause.Stop()
	for id := int64(1000); ctx.Err() == nil; id++ {
		step := s.Step(id)
		if err := step.Send(name(other), fmt.Sprint("load", index), x); err != nil {
			return err
		}
		if v, err := step.Recv(ctx, name(other), fmt.Sprint("load", other)); err == nil {
			v.Tensor.Release()
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
	return nil
}

// process is the peer as its observer sees it.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
}

// startPeer starts the peer, and returns when it serves.
func startPeer(t *testing.T, route, load string, addresses []string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), peerVariable+"="+strings.Join(append([]string{route, load}, addresses...), ","))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{t, cmd}
	t.Cleanup(sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Process.Kill() // it may be stopped
		_ = cmd.Wait()
	}))
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the peer says %q, %v", line, err)
	}
	return p
}

// stop stops the peer, and returns when all its threads have stopped: on a busy machine some run on until the one that has the
// signal gets a processor.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGSTOP)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); !p.isStopped(); <-tick.C {
		if time.Since(begin) > patience {
			p.t.Fatal("the peer does not stop")
		}
	}
}

func (p *process) isStopped() bool {
	p.t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", p.cmd.Process.Pid))
	if err != nil || len(stats) == 0 {
		p.t.Fatal("the peer has ended: ", err)
	}
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err == nil && !strings.Contains(string(text), ") T ") {
			return false
		}
	}
	return true
}

func (p *process) goOn() { p.signal(syscall.SIGCONT) }
func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
