package tryst_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst"
)

// A process of this test with serveCluster in its environment serves task 1 of those addresses, which are separated by a comma,
// over the route serveRoute.
const (
	serveCluster = "TRYST_TEST_SERVE_CLUSTER"
	serveRoute   = "TRYST_TEST_SERVE_ROUTE"
)

// serveForEver serves a task until the process is killed. It writes a line when it does, and one when a receive waits there.
func serveForEver(addresses, route string) {
	metrics := prometheus.NewRegistry()
	s, err := tryst.Serve(context.Background(), taskOf(route, strings.Split(addresses, ","), 1), tryst.WithRegisterer(metrics))
	if err != nil {
		_, _ = fmt.Println(err)
		os.Exit(1)
	}
	_, _ = fmt.Println("serves", s.Task())
	for tick := time.NewTicker(time.Millisecond); !waits(metrics); {
		<-tick.C
	}
	_, _ = fmt.Println("a receive waits")
	select {}
}

func waits(metrics prometheus.Gatherer) bool {
	families, _ := metrics.Gather()
	for _, f := range families {
		if f.GetName() == "tryst_waiting_receives" && f.GetMetric()[0].GetGauge().GetValue() > 0 {
			return true
		}
	}
	return false
}

// taskOf are the settings of a task.
func taskOf(route string, addresses []string, task int) tryst.Config {
	cfg := configOf(route)
	cfg.Cluster = map[string][]string{"worker": addresses}
	cfg.Task, cfg.Listen = fmt.Sprintf("/job:worker/task:%d", task), addresses[task]
	return cfg
}

// The process of a peer is killed, and another one takes its place. What waits for a value of the first one ends with Aborted
// within a second after the second one listens, as Step.Recv says.
func TestAReceiveFromAPeerThatRestartsEndsWithinASecond(t *testing.T) {
	for _, route := range []string{"grpc", "tcp", "shm"} {
		t.Run(route, func(t *testing.T) {
			if route == "shm" && runtime.GOOS != "linux" {
				t.Skip("shared memory needs Linux")
			}
			took := time.Hour
			for range 6 { // the machine may be busy
				if took = min(took, testRestart(t, route)); took <= time.Second || t.Failed() {
					return
				}
			}
			t.Errorf("it ended after %v", took)
		})
	}
}

// testRestart restarts a peer of this process, and returns after which time the receive has ended.
func testRestart(t *testing.T, route string) time.Duration {
	addresses := freeAddresses(2)
	s, err := tryst.Serve(t.Context(), taskOf(route, addresses, 0))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(context.Background())
	peer := startTask(t, route, addresses)
	received := make(chan error, 1)
	go func() {
		_, err := s.Step(1).Recv(context.Background(), "/job:worker/task:1", "x")
		received <- err
	}()
	peer.wait(t, "a receive waits")
	if err := peer.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = peer.Wait() // its port is free after that
	startTask(t, route, addresses)
	begin := time.Now()
	err = <-received
	took := time.Since(begin)
	t.Logf("over %s it ended after %v: %v", route, took, err)
	if !errors.Is(err, tryst.ErrPeerRestarted) {
		t.Errorf("after %v: %v", took, err)
	}
	return took
}

// taskProcess is the process of task 1.
type taskProcess struct {
	*exec.Cmd
	lines *bufio.Reader
}

// startTask starts the process, and returns when it serves.
func startTask(t *testing.T, route string, addresses []string) *taskProcess {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), serveCluster+"="+strings.Join(addresses, ","), serveRoute+"="+route)
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	p := &taskProcess{c, bufio.NewReader(out)}
	p.wait(t, "serves")
	return p
}

// wait waits for its next line.
func (p *taskProcess) wait(t *testing.T, want string) {
	t.Helper()
	if line, err := p.lines.ReadString('\n'); !strings.HasPrefix(line, want) {
		t.Fatalf("the process: %q, %v, want %q", line, err, want)
	}
}
