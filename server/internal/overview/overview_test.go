package overview

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// TestRatesAreThoseOfTheLastIntervals: of a route those of the last one, of a peer those of the last five.
func TestRatesAreThoseOfTheLastIntervals(t *testing.T) {
	tr, now := NewTraffic(), time.Now()
	add := func(totals ...Total) {
		now = now.Add(interval)
		tr.Add(now, totals)
	}
	add(Total{"b", "shm", 100, 0}) // what was sent before the start counts in the first interval
	add(Total{"b", "shm", 600, 50})
	add(Total{"b", "shm", 600, 50}, Total{"c", "tcp", 0, 7})
	routes, history := tr.Routes()
	if len(routes) != 2 || routes[0].Route != "shm" || routes[0].SentBytes != 600 || routes[0].SentPerSecond != 0 || routes[1].ReceivedPerSecond != 7 {
		t.Errorf("%+v", routes)
	}
	if h := history.Routes[0]; !slices.Equal(h.Sent, []int64{100, 500, 0}) || !slices.Equal(h.Received, []int64{0, 50, 0}) || !history.End.Equal(now) {
		t.Errorf("%+v", history)
	}
	if b := tr.Counts()["b"]; b.SentPerSecond != 200 || b.SentBytes != 600 || b.ReceivedBytes != 50 {
		t.Errorf("%+v", b)
	}
	for range rateIntervals {
		add(Total{"b", "shm", 600, 50})
	}
	if c := tr.Counts(); c["b"].SentPerSecond != 0 || c["b"].SentBytes != 600 || len(c) != 2 {
		t.Errorf("%+v", c)
	}
	add(Total{"b", "shm", 600, 50})
	if c := tr.Counts(); len(c) != 1 {
		t.Errorf("a peer that is gone is not forgotten: %+v", c)
	}
	add(Total{"b", "shm", 5, 50}) // another process has its name
	if b := tr.Counts()["b"]; b.SentBytes != 605 {
		t.Errorf("%+v", b)
	}
}

// TestHistoryIsBounded: it has the last five minutes, and the newest rate at the end.
func TestHistoryIsBounded(t *testing.T) {
	tr, now := NewTraffic(), time.Now()
	for i := range int64(historyIntervals + 10) {
		tr.Add(now.Add(time.Duration(i)*interval), []Total{{"b", "grpc", i * (i + 1) / 2, 0}})
	}
	_, history := tr.Routes()
	if sent := history.Routes[0].Sent; len(sent) != historyIntervals || sent[0] != 10 || sent[historyIntervals-1] != historyIntervals+9 {
		t.Errorf("%d: %v", len(history.Routes[0].Sent), history.Routes[0].Sent)
	}
}

// TestWarningsAreBounded: the last ones are kept, repeated ones once, and long texts are cut.
func TestWarningsAreBounded(t *testing.T) {
	var w Warnings
	log := slog.New(w.Handler(slog.NewTextHandler(io.Discard, nil))).With("a", 1)
	for i := range maxWarnings + 5 {
		log.Warn(fmt.Sprint("line ", i), "long", strings.Repeat("é", maxText))
		log.Warn(fmt.Sprint("line ", i), "long", strings.Repeat("é", maxText))
	}
	all := w.Newest()
	if len(all) != maxWarnings || all[0].Message != fmt.Sprint("line ", maxWarnings+4) || all[0].Count != 2 || all[maxWarnings-1].Message != "line 5" {
		t.Fatalf("%d: %+v", len(all), all[0])
	}
	if text := all[0].Attributes[1].Value; len(text) > maxText+len("…") || !strings.HasSuffix(text, "é…") {
		t.Errorf("%q", text)
	}
	many := make([]any, 0, 100)
	for i := range 50 {
		many = append(many, fmt.Sprint("k", i), i)
	}
	log.WithGroup("g").Error("many", many...)
	if last := w.Newest()[0]; len(last.Attributes) != maxAttributes || last.Attributes[1].Key != "g.k0" || last.Level != "ERROR" {
		t.Errorf("%+v", last)
	}
}

// TestOneSnapshotServesAll: requests within fresh share one, so a client that asks in a loop costs no more than five a second.
func TestOneSnapshotServesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken := 0
		c := Cache{Take: func() *statusapi.Status {
			taken++
			return &statusapi.Status{Version: taken, History: &statusapi.History{IntervalSeconds: 1}}
		}}
		for range 1000 {
			if _, err := c.Get(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(fresh)
		e, err := c.Get()
		if err != nil || taken != 2 {
			t.Errorf("%d snapshots, %v", taken, err)
		}
		var full, event statusapi.Status
		if err := json.Unmarshal(e.Full, &full); err != nil || full.History == nil || full.Version != 2 {
			t.Errorf("%s: %v", e.Full, err)
		}
		if err := json.Unmarshal(e.Event, &event); err != nil || event.History != nil || event.Version != 2 {
			t.Errorf("%s: %v", e.Event, err)
		}
	})
}

// TestSnapshotIsNotOlderThanAChange: a reader that is told of a change sees it.
func TestSnapshotIsNotOlderThanAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		taken, changed := 0, time.Time{}
		c := Cache{Take: func() *statusapi.Status { taken++; return &statusapi.Status{Version: taken} }, Changed: func() time.Time { return changed }}
		for _, want := range []int{1, 1, 2, 2} {
			if want > taken && taken > 0 {
				time.Sleep(time.Millisecond)
				changed = time.Now()
				time.Sleep(time.Millisecond)
			}
			if e, err := c.Get(); err != nil || taken != want || !strings.Contains(string(e.Event), fmt.Sprintf(`"version":%d`, want)) {
				t.Errorf("%d snapshots, want %d: %v", taken, want, err)
			}
		}
	})
}

// TestSamplerSamplesEachInterval: until it is closed.
func TestSamplerSamplesEachInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr, n := NewTraffic(), int64(0)
		s := StartSampler(tr, func() []Total { n++; return []Total{{"b", "tcp", n, 0}} })
		time.Sleep(3*interval + interval/2)
		s.Close()
		s.Close()
		time.Sleep(3 * interval)
		if _, h := tr.Routes(); n != 4 || len(h.Routes[0].Sent) != 4 {
			t.Errorf("%d samples, %+v", n, h)
		}
		(*Sampler)(nil).Close()
	})
}
