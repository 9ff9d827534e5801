//go:build rxe && linux && cgo

package together_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/integration/roce/internal/cabletest"
	"github.com/tryst-rdma/tryst/internal/rocewire"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	"github.com/tryst-rdma/tryst/rendezvous"
	"github.com/tryst-rdma/tryst/server"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs/roce"
	"github.com/tryst-rdma/tryst/verbs/verbstest"
)

// testTimeout limits waits that must not hang, on an emulated processor.
const testTimeout = 5 * time.Minute

// TestRxeTransport: two processes exchange tensors over verbs alone. One has the kernel's device
// and sends back what it receives. The other is the test, with our device.
func TestRxeTransport(t *testing.T) {
	bed := newTestbed(t, roce.Options{})
	sizes := []int64{0, 1, 1000, 4096, 100_003, 1 << 20, 8 << 20}
	var sum uint64
	for _, n := range sizes {
		sum += uint64(n) //nolint:gosec // not negative
	}
	for _, loss := range []float32{0, 1} {
		for f := range family(2) {
			t.Run(fmt.Sprintf("%v loss %v%%", f, loss), func(t *testing.T) {
				env := bed.env(t, f, kernelToUs)
				kernel, ours := env.Ends(t)
				listen := map[int]string{theirTask: transporttest.FreeAddresses(t, 1)[0], ourTask: transporttest.FreeAddresses(t, 1)[0]}
				s, err := configOf(ourTask, ours, listen).start(t.Output())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { // before the other server ends
					ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
					defer cancel()
					if err := s.Close(ctx); err != nil {
						t.Error(err)
					}
				})
				startServer(t, configOf(theirTask, kernel, listen))
				bed.lose(t, loss)
				for step, n := range sizes {
					exchange(t, s, int64(1+step), n)
				}
				v, _ := s.Verbs()
				for _, l := range v.Connections() {
					n := uint64(len(sizes))
					if l.Stats.Received != n || l.Stats.ReceivedBytes != sum || l.Stats.Sent != n || l.Stats.SentBytes != sum {
						t.Errorf("the channel carried %+v, want %d tensors with %d bytes each way", l.Stats, n, sum)
					}
				}
			})
		}
	}
}

// TestRxeTakenPort: a process that does not have port 4791, the only one to which
// kernels send, serves peers with a kernel's device over gRPC, and reports why.
func TestRxeTakenPort(t *testing.T) {
	bed := newTestbed(t, roce.Options{})
	env := bed.env(t, 0, kernelToUs)
	taken, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(cabletest.OurAddrs()[0].Addr(), rocewire.Port)))
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	kernel, ours := env.Ends(t)
	listen := map[int]string{theirTask: transporttest.FreeAddresses(t, 1)[0], ourTask: transporttest.FreeAddresses(t, 1)[0]}
	theirs, own := configOf(theirTask, kernel, listen), configOf(ourTask, ours, listen)
	theirs.Fallback, own.Fallback = "grpc", "grpc"
	var log bytes.Buffer // read when the server is closed
	s, err := own.start(io.MultiWriter(t.Output(), &log))
	if err != nil {
		t.Fatal(err)
	}
	const reason = "a device behind the kernel sends to UDP port 4791 only"
	t.Cleanup(func() { // before the other server ends
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		if !strings.Contains(log.String(), reason) {
			t.Errorf("the log lacks %q:\n%s", reason, log.String())
		}
	})
	startServer(t, theirs)
	exchange(t, s, 1, 1<<20)
	v, _ := s.Verbs()
	reported := func(l verbstransport.Connection) bool {
		return l.Reason != nil && strings.Contains(l.Reason.Error(), reason)
	}
	// Our attempt may begin before the peer listens, and end after the peer's own
	// attempt was rejected. Then the next attempt reports why.
	tick, timeout := time.NewTicker(10*time.Millisecond), time.After(testTimeout)
	defer tick.Stop()
	for waiting := true; waiting && !slices.ContainsFunc(v.Connections(), reported); {
		select {
		case <-tick.C:
		case <-timeout:
			waiting = false
		}
	}
	for _, l := range v.Connections() {
		if l.Verbs || l.Stats.Received > 0 || l.Stats.Sent > 0 || !reported(l) {
			t.Errorf("the channel carried %+v, reason %v; want no channel and the reason %q", l.Stats, l.Reason, reason)
		}
	}
}

// The tasks of the job.
const (
	job       = "worker"
	theirTask = 0 // on the kernel's device
	ourTask   = 1
)

func task(i int) cluster.Task { return cluster.Task{Job: job, Index: i} }

// serverConfig configures a server.
type serverConfig struct {
	Task             int
	Listen           map[int]string // of all tasks
	Provider, Device string
	GIDIndex         int
	Fallback         string
}

func configOf(task int, e verbstest.End, listen map[int]string) serverConfig {
	return serverConfig{Task: task, Listen: listen, Provider: e.Provider.Name(), Device: e.Device, GIDIndex: int(e.GIDIndex), Fallback: "none"}
}

// start starts the server. The caller closes it.
func (p serverConfig) start(log io.Writer) (*server.Server, error) {
	spec, err := cluster.NewSpec(map[string]map[int]string{job: p.Listen})
	if err != nil {
		return nil, err
	}
	c := server.Config{}
	c.Listen, c.Task, c.Cluster = p.Listen[p.Task], task(p.Task).String(), spec.Lists()
	c.Transport, c.Fallback, c.Provider = verbstransport.Name, p.Fallback, p.Provider
	c.RDMA.Device, c.RDMA.GIDIndex, c.RDMA.Timeout = p.Device, &p.GIDIndex, 200*time.Millisecond
	c.RDMA.Arena, c.PeerTimeout, c.ShutdownTimeout = 4<<20, testTimeout, testTimeout
	return server.Start(context.Background(), c, server.Options{Logger: slog.New(slog.NewTextHandler(log, nil))})
}

// serverVariable is the environment variable of the process that is the other server. Its value is
// the serverConfig.
const serverVariable = "TRYST_TEST_SERVER"

// startServer starts that process. It must end with status 0 when the test ends.
func startServer(t *testing.T, p serverConfig) {
	t.Helper()
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), serverVariable+"="+string(text))
	var log bytes.Buffer
	cmd.Stderr = &log
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close() // ends the process
		kill := time.AfterFunc(testTimeout, func() { _ = cmd.Process.Kill() })
		defer kill.Stop()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the process with the kernel's device: %v", err)
		}
		if t.Failed() {
			t.Logf("its log:\n%s", log.String())
		}
	})
}

// runServer is that process, until its input ends. It sends each tensor back in the step in which
// it was received.
func runServer(text string) error {
	var p serverConfig
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return err
	}
	s, err := p.start(os.Stderr)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until the input ends
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	peer := task(ourTask).String()
	for step := int64(1); ; step++ {
		v, err := receive(ctx, s, step, peer, "there")
		if ctx.Err() != nil {
			break
		}
		if err == nil {
			err = s.Send(step, peer, "back", v.Tensor, false)
			v.Tensor.Release()
		}
		if err != nil {
			return err
		}
	}
	closing, stop := context.WithTimeout(context.Background(), testTimeout)
	defer stop()
	return s.Close(closing)
}

// receive waits for a tensor. The caller releases it.
func receive(ctx context.Context, s *server.Server, step int64, from, name string) (rendezvous.Value, error) {
	type result struct {
		value rendezvous.Value
		err   error
	}
	done := make(chan result, 1)
	s.RecvAsync(ctx, step, from, name, func(v rendezvous.Value, err error) { done <- result{v, err} })
	r := <-done
	return r.value, r.err
}

// exchange sends a tensor in a step of its own, receives what the other server sends back, and
// compares both.
func exchange(t *testing.T, s *server.Server, step, size int64) {
	t.Helper()
	shape, err := tensor.NewShape(size)
	if err != nil {
		t.Fatal(err)
	}
	v, ok := s.Verbs()
	if !ok {
		t.Fatal("the server has no verbs")
	}
	sent, err := tensor.Allocate(v.SendAllocator(), tensor.Uint8, shape)
	if err != nil {
		t.Fatal(err)
	}
	defer sent.Release()
	for i, b := 0, sent.Bytes(); i < len(b); i++ {
		b[i] = byte(i*7 + i>>9 + int(step))
	}
	peer := task(theirTask).String()
	if err := s.Send(step, peer, "there", sent, false); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	back, err := receive(ctx, s, step, peer, "back")
	if err != nil {
		t.Fatalf("%d bytes: %v", size, err)
	}
	defer back.Tensor.Release()
	if !bytes.Equal(back.Tensor.Bytes(), sent.Bytes()) {
		t.Errorf("a tensor of %d bytes came back with another content", size)
	}
	s.EndStep(step)
}
