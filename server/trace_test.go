package server

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/tensor"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

// TestTraceOfARunningServer: /trace has the kernels that run meanwhile, by op and node.
func TestTraceOfARunningServer(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.MetricsAddress = "127.0.0.1:0" }), Options{Kernels: ops.New()})
	session := openSession(t, s, master.Options{})
	g := session.NewGraph()
	g.Fetch("y", g.AddNamed("twice", "AddV2", ofFloat, g.Feed("x", tensor.Float32), g.Feed("z", tensor.Float32)), tensor.Float32)
	p := registerGraph(t, session, g)
	x := float(t, 3)
	defer x.Release()

	ctx, stop := context.WithCancel(t.Context())
	runs := make(chan struct{})
	go func() {
		defer close(runs)
		for ctx.Err() == nil {
			v, err := p.Step(t.Context(), map[string]*tensor.Tensor{"x": x, "z": x})
			if err != nil {
				t.Error(err)
				return
			}
			v["y"].Release()
		}
	}()
	defer func() {
		stop()
		<-runs
	}()
	// On a busy machine no step may run while one trace is made.
	for end := time.Now().Add(soon); time.Now().Before(end); {
		if n := tracedKernels(t, "http://"+s.http.Addr(httpserver.MetricsKey).String()+"/trace?seconds=0.2"); n > 0 {
			return
		}
	}
	t.Error("no trace has AddV2")
}

// tracedKernels returns how many kernels of the node twice are in a trace.
func tracedKernels(t *testing.T, url string) (n int) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var got struct {
		TraceEvents []struct {
			Name string
			Args struct{ Name string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&got); err != nil {
		t.Fatal(err)
	}
	for _, e := range got.TraceEvents {
		if e.Name == "AddV2" && e.Args.Name == "twice" {
			n++
		}
	}
	return n
}
