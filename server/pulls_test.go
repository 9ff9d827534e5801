package server

import (
	"bytes"
	"context"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/tryst-rdma/tryst/tensor/tensortest"
)

// TestMetricsOfPulls: by code, with their duration, and the bytes by publication. The line of the log says who pulled what.
func TestMetricsOfPulls(t *testing.T) {
	var log bytes.Buffer
	s := start(t, settings(), Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	publishSome(t, s)
	cl, err := Dial(t.Context(), settings(func(c *Config) { c.Transport = TransportGRPC }).ForClient(), s.Addr().String(), Options{Allocator: tensortest.NewAllocator(t)})
	if err != nil {
		t.Fatal(err)
	}
	pullAll(t, cl)
	if err := cl.Close(context.Background()); err != nil {
		t.Error(err)
	}
	ticks := time.NewTicker(time.Millisecond)
	defer ticks.Stop()
	text := ""
	for end := time.Now().Add(soon); metric(t, text, `tryst_pulls_total{code="OK"}`) != 1; <-ticks.C {
		if text = metricsText(s.gatherer); time.Now().After(end) {
			t.Fatalf("no pull is counted:\n%s", text)
		}
	}
	bytes := s.Catalog().List()[0].Bytes
	if n := metric(t, text, `tryst_pulled_bytes_total{publication="`+s.Catalog().List()[0].Name+`"}`); n != float64(bytes) {
		t.Errorf("%v bytes were pulled of %d", n, bytes)
	}
	if n := metric(t, text, "tryst_pull_seconds_count"); n != 1 {
		t.Errorf("%v pulls have a duration", n)
	}
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	line := regexp.MustCompile(`msg="a pull has ended" address=127\.0\.0\.1:\d+ puller=/job:client/\S+ publication=\S+ version=\w+ step=\d+ outcome=complete code=OK tensors=\d+ bytes=(\d+) sent_bytes=(\d+) seconds=\S+ over=grpc\n`)
	if m := line.FindStringSubmatch(log.String()); m == nil || m[1] != m[2] {
		t.Errorf("the log has no such line:\n%s", log.String())
	}
}
