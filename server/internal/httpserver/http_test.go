package httpserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/logtest"
	"github.com/tryst-rdma/tryst/internal/transporttest"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/overview"
	"github.com/tryst-rdma/tryst/status"
)

// TestProfilesHaveALongestTime: a longer one is refused at once.
func TestProfilesHaveALongestTime(t *testing.T) {
	s, _ := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, path := range []string{"profile", "trace", "mutex"} {
		url := fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", s.Addr(PprofKey), path, int(maxProfileTime.Seconds())+1)
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, resp.Status)
		}
	}
}

// TestProfilesInProgressAreBounded: one more gets 503, and is counted.
func TestProfilesInProgressAreBounded(t *testing.T) {
	s, o := start(t)
	get := func(query string) (int, error) {
		resp, err := http.Get("http://" + s.Addr(PprofKey).String() + "/debug/pprof/" + query)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		_, err = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode, err
	}
	codes := make(chan int)
	for range 2 * maxProfiles {
		go func() {
			code, err := get("mutex?seconds=3") // the difference of two profiles, at any number at once
			if err != nil {
				t.Error(err)
			}
			codes <- code
		}()
	}
	n := map[int]int{}
	for range 2 * maxProfiles {
		n[<-codes]++
	}
	if n[http.StatusOK] != maxProfiles || n[http.StatusServiceUnavailable] != maxProfiles {
		t.Errorf("got %v, want %d of each of 200 and 503", n, maxProfiles)
	}
	if got := counted(t, o.listeners.Refused.WithLabelValues("pprof-address", listen.RefusedByCalls)); got != maxProfiles {
		t.Errorf("%v were counted, want %d", got, maxProfiles)
	}
	if code, err := get("cmdline"); code != http.StatusOK || err != nil {
		t.Errorf("afterwards: %d, %v", code, err)
	}
}

// observed is what a Server under test has counted and logged.
type observed struct {
	listeners *listen.Listeners
	log       *logtest.Log
}

// start serves on both addresses. A recording ends with its time.
func start(t *testing.T) (*Server, observed) {
	t.Helper()
	log := new(logtest.Log)
	o := observed{listen.NewListeners(log.Logger()), log}
	s, err := Start(t.Context(), Options{
		MetricsAddress: "127.0.0.1:0", PprofAddress: "127.0.0.1:0", Listeners: o.listeners, Metrics: prometheus.NewRegistry(),
		Links: func() any { return nil }, Changed: never, Status: func(context.Context) (overview.Encoded, error) {
			return overview.Encoded{Full: []byte("{}"), Event: []byte("{}")}, nil
		},
		Record: func(ctx context.Context) ([]*tfpb.LabeledStepStats, func()) {
			<-ctx.Done()
			return nil, func() {}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s, o
}

// counted returns the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return all[0].GetMetric()[0].GetCounter().GetValue()
}

// TestStartFailsWhenAnAddressIsInUse: the error names the setting, and the other address is free again.
func TestStartFailsWhenAnAddressIsInUse(t *testing.T) {
	s, o := start(t)
	metrics := transporttest.FreeAddresses(t, 1)[0]
	again, err := Start(t.Context(), Options{MetricsAddress: metrics, PprofAddress: s.Addr(PprofKey).String(), Listeners: o.listeners, Metrics: prometheus.NewRegistry()})
	if status.CodeOf(err) != status.Unavailable || !strings.Contains(err.Error(), PprofKey) {
		t.Errorf("got %v, %v", again, err)
	}
	again.Close() // nil
	if l, err := net.Listen("tcp", metrics); err != nil {
		t.Error(err)
	} else {
		_ = l.Close()
	}
}

// refusePlainly is a refuser that counts nothing.
func refusePlainly(w http.ResponseWriter, _ *http.Request, _ string, code int, text string) {
	http.Error(w, text, code)
}

// TestRefusedHTTPRequestsAreCountedAndLogged: each counts, with its reason, and each listener logs one a minute.
func TestRefusedHTTPRequestsAreCountedAndLogged(t *testing.T) {
	s, o := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	get := func(listener int, path string) (code int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.listeners[listener].addr.String()+path, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return 0 // ended with ctx
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for range 2 {
		if code := get(0, "/trace?seconds=61"); code != http.StatusBadRequest {
			t.Errorf("a long trace: %d", code)
		}
		if code := get(1, "/debug/pprof/heap?seconds=601"); code != http.StatusBadRequest {
			t.Errorf("a long profile: %d", code)
		}
	}
	if code := get(0, "/trace?seconds=x"); code != http.StatusBadRequest {
		t.Errorf("a wrong time: %d", code)
	}
	codes := make(chan int)
	for range maxTraces + 1 {
		go func() { codes <- get(0, "/trace?seconds=60") }()
	}
	if code := <-codes; code != http.StatusServiceUnavailable {
		t.Errorf("one trace more: %d", code)
	}
	cancel()
	for range maxTraces {
		<-codes
	}
	for _, tt := range []struct {
		setting, reason string
		want            float64
	}{
		{"metrics-address", listen.RefusedByTime, 2}, {"pprof-address", listen.RefusedByTime, 2},
		{"metrics-address", listen.RefusedByCalls, 1},
	} {
		if got := counted(t, o.listeners.Refused.WithLabelValues(tt.setting, tt.reason)); got != tt.want {
			t.Errorf("%s, %s: %v were counted, want %v", tt.setting, tt.reason, got, tt.want)
		}
		line := "refusing an HTTP request\" setting=" + tt.setting
		if n := strings.Count(o.log.String(), line); n != 1 {
			t.Errorf("%d lines of %s, want 1:\n%s", n, tt.setting, o.log.String())
		}
	}
}

// TestScrapesAndLinksBeyondTheirBoundAreRefused: with the reason that is counted and logged.
func TestScrapesAndLinksBeyondTheirBoundAreRefused(t *testing.T) {
	var reasons []string
	refuse := func(w http.ResponseWriter, _ *http.Request, reason string, code int, text string) {
		reasons = append(reasons, reason)
		http.Error(w, text, code)
	}
	asking, answered := make(chan struct{}), make(chan struct{})
	ask := func() {
		asking <- struct{}{}
		<-answered
	}
	gather := prometheus.NewRegistry()
	gather.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 { ask(); return 1 }))
	for path, h := range map[string]http.Handler{
		"/metrics": metricsHandler(gather, refuse), "/links": linksHandler(func() any { ask(); return nil }, refuse),
	} {
		var under sync.WaitGroup
		for range maxScrapes {
			under.Go(func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)) })
			<-asking
		}
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, path, nil))
		if r.Code != http.StatusServiceUnavailable || len(reasons) != 1 || reasons[0] != listen.RefusedByCalls {
			t.Errorf("%s: %d, refused for %q", path, r.Code, reasons)
		}
		for range maxScrapes {
			answered <- struct{}{}
		}
		under.Wait()
		reasons = nil
	}
}

// TestListenersHaveDeadlines: net/http lets a request and an idle connection be for ever unless it is told.
func TestListenersHaveDeadlines(t *testing.T) {
	s, _ := start(t)
	for _, l := range s.listeners {
		h := l.server
		if h.ReadTimeout != requestTimeout || h.ReadHeaderTimeout != requestTimeout || h.IdleTimeout != requestTimeout || h.WriteTimeout == 0 || h.MaxHeaderBytes != maxHTTPHeader {
			t.Errorf("%s: a listener without a deadline or limit: %+v", l.setting, h)
		}
	}
}

// TestScrapesAreBounded: metrics are gathered for a few clients at once, and one that does not
// read its answer ends.
func TestScrapesAreBounded(t *testing.T) {
	gathering, gathered := make(chan struct{}), make(chan struct{})
	r := prometheus.NewRegistry()
	r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "slow"}, func() float64 {
		gathering <- struct{}{}
		<-gathered
		return 1
	}))
	s := httptest.NewServer(metricsHandler(r, refusePlainly))
	defer s.Close()
	get := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL+"/metrics", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		resp, err := s.Client().Do(req)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	codes := make(chan int)
	for range maxScrapes {
		go func() { codes <- get() }()
		<-gathering
	}
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("one more got %d", got)
	}
	close(gathered)
	for range maxScrapes {
		if got := <-codes; got != http.StatusOK {
			t.Errorf("one of those under way got %d", got)
		}
	}
}

// TestLinksAreServedToAFewAtOnce: one more is refused.
func TestLinksAreServedToAFewAtOnce(t *testing.T) {
	asking, answered := make(chan struct{}), make(chan struct{})
	h := linksHandler(func() any {
		asking <- struct{}{}
		<-answered
		return nil
	}, refusePlainly)
	get := func() int {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/links", nil))
		return r.Code
	}
	codes := make(chan int)
	for range maxScrapes {
		go func() { codes <- get() }()
		<-asking
	}
	if got := get(); got != http.StatusServiceUnavailable {
		t.Errorf("one more got %d", got)
	}
	close(answered)
	for range maxScrapes {
		if got := <-codes; got != http.StatusOK {
			t.Errorf("one of those under way got %d", got)
		}
	}
}
