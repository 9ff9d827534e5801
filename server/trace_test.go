package server

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/tensorflow/master"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
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
	resp, err := http.Get("http://" + s.http[0].addr.String() + "/trace?seconds=0.2")
	stop()
	<-runs
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
	n := 0
	for _, e := range got.TraceEvents {
		if e.Name == "AddV2" && e.Args.Name == "twice" {
			n++
		}
	}
	if n == 0 {
		t.Errorf("the trace has no AddV2: %v", got.TraceEvents)
	}
}

// TestTracesAreBounded: a recording has a longest time, and there are few at once.
func TestTracesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := traceHandler(func(ctx context.Context) []*tfpb.LabeledStepStats {
			<-ctx.Done()
			return nil
		}, refusePlainly)
		get := func(query string) *httptest.ResponseRecorder {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/trace"+query, nil))
			return w
		}
		for _, bad := range []string{"?seconds=0", "?seconds=-1", "?seconds=61", "?seconds=NaN", "?seconds=x"} {
			if w := get(bad); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "at most 60") {
				t.Errorf("%s: %d %s", bad, w.Code, w.Body)
			}
		}
		began := time.Now()
		done := make(chan time.Duration)
		for range maxTraces {
			go func() {
				if w := get("?seconds=60"); w.Code != http.StatusOK {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				done <- time.Since(began)
			}()
		}
		synctest.Wait()
		if w := get(""); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "recordings under way") {
			t.Errorf("one more: %d %s", w.Code, w.Body)
		}
		for range maxTraces {
			if took := <-done; took != time.Minute {
				t.Errorf("a recording of 60 s took %v", took)
			}
		}
		if w := get(""); w.Code != http.StatusOK || time.Since(began) != 61*time.Second {
			t.Errorf("the next one: %d after %v", w.Code, time.Since(began))
		}
	})
}
