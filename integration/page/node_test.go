//go:build page

package page

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/internal/top"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensor/npy"
)

// The variables of the environment that make the test binary a process of the cluster.
const (
	nodeVariable    = "TRYST_PAGE_NODE"    // its index
	clusterVariable = "TRYST_PAGE_CLUSTER" // the addresses, with commas
	metricsVariable = "TRYST_PAGE_METRICS" // its metrics address
)

// runNode is a process of the cluster. It sends a tensor of 1 MiB to each other process and receives one from it, in a loop. Worker 2
// waits for two values that worker 1 does not send: "gradients/missing" in step 7, in which worker 1 has sent "gradient/missing", and
// one whose name is markup. // Worker 2 has a warning. Each
// ends with its standard input.
func runNode(index int, addresses []string, metrics string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
	cfg := tryst.Config{
		Cluster: map[string][]string{"worker": addresses}, Task: name(index), Listen: addresses[index], Transport: "verbs", Provider: "tcp,shm", MetricsAddress: metrics,
		PeerTimeout: 5 * time.Second,
	}
	if index == 2 { // has a warning
		cfg.Memory, cfg.Limits.MaxWaitingBytes = 1<<30, 1<<30
	}
	s, err := tryst.Serve(ctx, cfg, tryst.WithLogger(log))
	if err != nil {
		return err
	}
	defer func() { _ = s.Close(context.Background()) }()
	values, err := tensor.FromSlice(tensor.Vector(1<<18), make([]float32, 1<<18))
	if err != nil {
		return err
	}
	defer values.Release()
	if index == 0 {
		if _, err := s.Publish(ctx, "model", os.Getenv("TRYST_PAGE_MODEL")); err != nil {
			return err
		}
	}
	switch index {
	case 1:
		if err := s.Step(7).Send(name(2), "gradient/missing", values); err != nil {
			return err
		}
	case 2:
		go func() { _, _ = s.Step(7).Recv(ctx, name(1), "gradients/missing") }()
		go func() {
			<-time.After(time.Second) // so that the other one waits for longer
			_, _ = s.Step(8).Recv(ctx, name(1), "<b>not bold</b>")
		}()
	}
	fmt.Println("ready")
	for other := range addresses {
		if other != index {
			go exchange(ctx, s, index, other, values)
		}
	}
	<-ctx.Done()
	return nil
}

func name(index int) string { return "/job:worker/replica:0/task:" + strconv.Itoa(index) }

// exchange sends values to another process and receives its own, until ctx ends.
func exchange(ctx context.Context, s *tryst.Server, index, other int, values *tensor.Tensor) {
	pause := time.NewTicker(10 * time.Millisecond)
	defer pause.Stop()
	for id := int64(1000); ctx.Err() == nil; id++ {
		step := s.Step(id*10 + int64(index+other)) // of these two processes alone
		if err := step.Send(name(other), "load", values); err != nil {
			return
		}
		if v, err := step.Recv(ctx, name(other), "load"); err == nil {
			v.Tensor.Release()
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
	}
}

// node is a running process of the cluster.
type node struct {
	index   int
	metrics string // its metrics address
	cmd     *exec.Cmd
	end     func()
}

// startNodes starts three processes of a cluster, and returns when they have begun to exchange.
func startNodes(t *testing.T) []*node {
	t.Helper()
	addresses, metrics := transporttest.FreeAddresses(t, 3), transporttest.FreeAddresses(t, 3)
	var nodes []*node
	for i := range addresses {
		nodes = append(nodes, startNode(t, i, addresses, metrics[i]))
	}
	return nodes
}

func startNode(t *testing.T, index int, addresses []string, metrics string) *node {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), self)
	cmd.Env = append(os.Environ(), nodeVariable+"="+strconv.Itoa(index), clusterVariable+"="+strings.Join(addresses, ","), metricsVariable+"="+metrics, "TRYST_PAGE_MODEL="+model(t))
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
	n := &node{index: index, metrics: metrics, cmd: cmd, end: sync.OnceFunc(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})}
	t.Cleanup(n.end)
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("process %d says %q, %v", index, line, err)
	}
	return n
}

// kill ends a process as a crash does.
func (n *node) kill() {
	_ = n.cmd.Process.Kill()
	n.end()
}

// stop stops a process, as a debugger does, and goOn lets it go on.
func (n *node) stop(t *testing.T) { n.signal(t, syscall.SIGSTOP) }
func (n *node) goOn(t *testing.T) { n.signal(t, syscall.SIGCONT) }

func (n *node) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := n.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// status returns what a process says.
func (n *node) status(t *testing.T) *statusapi.Status {
	t.Helper()
	f := top.Client{HTTP: http.DefaultClient}.Fetch(t.Context(), n.metrics)
	if f.Err != nil {
		t.Fatal(f.Err)
	}
	return f.Status
}

// model returns a small file to publish.
func model(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.npy")
	x, err := tensor.FromSlice(tensor.Vector(1000), make([]float32, 1000))
	if err != nil {
		t.Fatal(err)
	}
	defer x.Release()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := npy.Write(f, x); err != nil {
		t.Fatal(err)
	}
	return path
}
