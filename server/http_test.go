package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"

	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/tensorflow/ops"
)

func halfRequest(t *testing.T, to net.Addr, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", to.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

// TestUnfinishedHTTPRequestsHoldNothing: a request whose body does not come is answered and closed at once, one
// whose headers do not come has a deadline, and both have a limit of their number. The server's own port
// and the same listener go on.
func TestUnfinishedHTTPRequestsHoldNothing(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.MetricsAddress, c.PprofAddress = "127.0.0.1:0", "127.0.0.1:0" }), Options{})
	for _, h := range s.http {
		if h.server.ReadTimeout != requestTimeout || h.server.WriteTimeout == 0 || h.server.MaxHeaderBytes != maxHTTPHeader {
			t.Errorf("a listener without a deadline or limit: %+v", h.server)
		}
		for _, path := range []string{"/metrics", "/trace", "/debug/pprof/heap", "/debug/pprof/symbol"} {
			for _, body := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
				conn := halfRequest(t, h.addr, "POST "+path+" HTTP/1.1\r\nHost: x\r\n"+body+"\r\n\r\n1")
				resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil || resp.StatusCode != http.StatusRequestEntityTooLarge || !resp.Close {
					t.Fatalf("POST %s with %s: %+v, %v", path, body, resp, err)
				}
				if _, err := io.Copy(io.Discard, conn); err != nil { // until the server closes it
					t.Error(err)
				}
				_ = conn.Close()
			}
		}
	}
	to := s.http[0].addr
	refused := s.listeners.Refused.WithLabelValues("metrics-address", listen.RefusedByAddress)
	for counted(t, refused) == 0 {
		halfRequest(t, to, "GET /metrics HTTP/1.1\r\nHost:")
	}
	client := trystgrpc.NewPeersClient(dialPlainly(t, s.Addr().String()))
	if _, err := client.Hello(t.Context(), &trystpb.HelloRequest{Requester: "/job:worker/replica:0/task:1"}, grpc.WaitForReady(true)); err != nil && !strings.Contains(err.Error(), "incarnation") {
		t.Errorf("the port of gRPC does not answer: %v", err)
	}
}

// TestProfilesHaveALongestTime: a longer one is refused at once.
func TestProfilesHaveALongestTime(t *testing.T) {
	s := start(t, settings(func(c *Config) { c.PprofAddress = "127.0.0.1:0" }), Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for _, path := range []string{"profile", "trace", "mutex"} {
		url := fmt.Sprintf("http://%s/debug/pprof/%s?seconds=%d", s.http[0].addr, path, int(maxProfileTime.Seconds())+1)
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
	s := start(t, settings(func(c *Config) { c.PprofAddress = "127.0.0.1:0" }), Options{})
	get := func(query string) (int, error) {
		resp, err := http.Get("http://" + s.http[0].addr.String() + "/debug/pprof/" + query)
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
			code, err := get("mutex?seconds=1") // the difference of two profiles, at any number at once
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
	if got := counted(t, s.listeners.Refused.WithLabelValues("pprof-address", listen.RefusedByCalls)); got != maxProfiles {
		t.Errorf("%v were counted, want %d", got, maxProfiles)
	}
	if code, err := get("cmdline"); code != http.StatusOK || err != nil {
		t.Errorf("afterwards: %d, %v", code, err)
	}
}

// refusePlainly is a refuser that counts nothing.
func refusePlainly(w http.ResponseWriter, _ *http.Request, _ string, code int, text string) {
	http.Error(w, text, code)
}

// TestRefusedHTTPRequestsAreCountedAndLogged: each counts, with its reason, and each listener logs one a minute.
func TestRefusedHTTPRequestsAreCountedAndLogged(t *testing.T) {
	var log syncBuffer
	s := start(t, settings(func(c *Config) { c.MetricsAddress, c.PprofAddress = "127.0.0.1:0", "127.0.0.1:0" }),
		Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), Kernels: ops.New()})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	get := func(listener int, path string) (code int) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.http[listener].addr.String()+path, nil)
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
		if got := counted(t, s.listeners.Refused.WithLabelValues(tt.setting, tt.reason)); got != tt.want {
			t.Errorf("%s, %s: %v were counted, want %v", tt.setting, tt.reason, got, tt.want)
		}
		line := "refusing an HTTP request\" setting=" + tt.setting
		if n := strings.Count(log.String(), line); n != 1 {
			t.Errorf("%d lines of %s, want 1:\n%s", n, tt.setting, log.String())
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
		"/metrics": metricsHandler(gather, refuse), "/links": linksHandler(func() []Link { ask(); return nil }, refuse),
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

// counted returns the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	r := prometheus.NewRegistry()
	r.MustRegister(c)
	text := strings.TrimSpace(metricsText(r))
	value, err := strconv.ParseFloat(text[strings.LastIndexByte(text, ' ')+1:], 64)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return value
}
