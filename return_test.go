package tryst_test

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst"
	"github.com/tryst-rdma/tryst/tensor"
)

// A process of this test with pullFrom in its environment pulls from that address over the transport pullRoute.
const (
	pullFrom  = "TRYST_TEST_PULL_FROM"
	pullRoute = "TRYST_TEST_PULL_ROUTE"
)

// pullForEver pulls w again and again until the process is killed.
func pullForEver(address, route string) {
	ctx := context.Background()
	c, err := tryst.Dial(ctx, address, configOf(route))
	if err != nil {
		os.Exit(1)
	}
	for {
		for t, err := range c.Pull(ctx, "w", tryst.PullInflight(32)) {
			if err == nil {
				t.Release()
			}
		}
	}
}

// configOf are the settings of a process that moves tensors over gRPC, or with a provider alone.
func configOf(route string) tryst.Config {
	if route == "grpc" {
		return tryst.Config{Transport: tryst.TransportGRPC}
	}
	return tryst.Config{Transport: tryst.TransportVerbs, Provider: route, Fallback: tryst.FallbackNone}
}

// What a stopped puller holds of a withdrawn version comes back: over verbs when its channel breaks, over gRPC when nothing
// has come on its connection. The bounds are those of docs/versions.md.
func TestMemoryOfAStoppedPullerComesBack(t *testing.T) {
	bounds := map[string]time.Duration{"roce": 5 * time.Second}
	if !testing.Short() { // these wait for longer timeouts
		bounds["grpc"], bounds["tcp"], bounds["shm"] = 15*time.Second, 5*time.Second, 5*time.Second
	}
	for route, bound := range bounds {
		t.Run(route, func(t *testing.T) {
			if route == "shm" && runtime.GOOS != "linux" {
				t.Skip("shared memory needs Linux")
			}
			metrics := prometheus.NewRegistry()
			cfg := configOf(route)
			cfg.Listen = "127.0.0.1:0"
			s, err := tryst.Serve(t.Context(), cfg, tryst.WithRegisterer(metrics))
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close(context.Background())
			publishLarge(t, s)
			stop := startPuller(t, s, route)
			for tick := time.NewTicker(time.Millisecond); s.Sent()["grpc"]+s.Sent()["verbs"] < 50; {
				<-tick.C
			}
			stop()
			begin := time.Now()
			lent, err := s.Withdraw(t.Context(), "w")
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*bound)
			defer cancel()
			err = lent.Wait(ctx)
			t.Logf("over %s the memory came back after %v", route, time.Since(begin))
			if err != nil || time.Since(begin) > bound {
				t.Errorf("after %v: %v", time.Since(begin), err)
			}
			if n, sum := returns(t, metrics); n != 1 || sum > time.Since(begin).Seconds() {
				t.Errorf("the metric has %d versions, after %v s", n, sum)
			}
		})
	}
}

// publishLarge publishes 128 MiB as w.
func publishLarge(t *testing.T, s *tryst.Server) {
	t.Helper()
	var all []*tensor.Tensor
	for i := range 8 {
		w, err := tensor.Make[float32](s.SendAllocator(), 4<<20)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Release)
		all = append(all, w.Named(string(rune('a'+i))))
	}
	if _, err := s.Update(t.Context(), "w", all); err != nil {
		t.Fatal(err)
	}
}

// startPuller starts a process that pulls w again and again. stop stops it, as SIGSTOP does.
func startPuller(t *testing.T, s *tryst.Server, route string) (stop func()) {
	t.Helper()
	puller := exec.Command(os.Args[0])
	puller.Env = append(os.Environ(), pullFrom+"="+s.Addr().String(), pullRoute+"="+route)
	if err := puller.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = puller.Process.Kill(); _ = puller.Wait() })
	return func() {
		t.Helper()
		if err := puller.Process.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
}

// returns reads the metric of the versions whose memory is back.
func returns(t *testing.T, g prometheus.Gatherer) (n uint64, sum float64) {
	t.Helper()
	all, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() == "tryst_version_memory_return_seconds" {
			h := f.GetMetric()[0].GetHistogram()
			return h.GetSampleCount(), h.GetSampleSum()
		}
	}
	t.Fatal("there is no such metric")
	return 0, 0
}
