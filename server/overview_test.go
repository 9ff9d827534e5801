package server

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/jsonschema-go/jsonschema"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	trystpb "github.com/tryst-rdma/tryst/internal/proto/tryst"
	"github.com/tryst-rdma/tryst/internal/proto/trystgrpc"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	"github.com/tryst-rdma/tryst/server/internal/httpserver"
	"github.com/tryst-rdma/tryst/tensor"
)

// statusOver gets the status of a server over HTTP, and checks it against the schema.
func statusOver(t *testing.T, s *Server) *statusapi.Status {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.http.Addr(httpserver.MetricsKey).String()+statusapi.Path, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "application/json" {
		t.Fatalf("%s: %s, %v", resp.Status, body, err)
	}
	wantSchema(t, body)
	st := new(statusapi.Status)
	if err := json.Unmarshal(body, st); err != nil {
		t.Fatal(err)
	}
	return st
}

func wantSchema(t *testing.T, body []byte) {
	t.Helper()
	text, err := os.ReadFile("../docs/status.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	schema, instance := new(jsonschema.Schema), any(nil)
	if err := json.Unmarshal(text, schema); err != nil {
		t.Fatal(err)
	}
	resolved, err := schema.Resolve(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body, &instance); err != nil {
		t.Fatal(err)
	}
	if err := resolved.Validate(instance); err != nil {
		t.Errorf("%v:\n%s", err, body)
	}
}

// statusWhen polls the status until ok.
func statusWhen(t *testing.T, s *Server, what string, ok func(*statusapi.Status) bool) *statusapi.Status {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(soon); ; <-tick.C {
		st := statusOver(t, s)
		if ok(st) {
			return st
		}
		if time.Now().After(end) {
			t.Fatalf("not %s: %+v", what, st)
		}
	}
}

func waitsFor(kind, key string) func(*statusapi.Status) bool {
	return func(st *statusapi.Status) bool { return findWait(st, kind, key) != nil }
}

func findWait(st *statusapi.Status, kind, key string) *statusapi.Wait {
	i := slices.IndexFunc(st.Waits.Oldest, func(w statusapi.Wait) bool { return w.Kind == kind && w.Key == key })
	if i < 0 {
		return nil
	}
	return &st.Waits.Oldest[i]
}

func withMetrics(c *Config) { c.MetricsAddress = "127.0.0.1:0" }

// TestStatusSaysWhoWaitsForWhat: the status of both sides of a receive that hangs names both tasks, the key and the step. What
// was sent under another name is beside it.
func TestStatusSaysWhoWaitsForWhat(t *testing.T) {
	a, b := twoTasks(t, withMetrics)
	begin := time.Now()
	loss, local := a.recv(7, b.Task().String(), "loss"), a.recv(7, a.Task().String(), "own")
	x := float(t, 1)
	defer x.Release()
	at := statusWhen(t, a, "waiting", func(st *statusapi.Status) bool {
		w := findWait(st, statusapi.WaitReceive, "loss")
		return w != nil && strings.Contains(w.Detail, "has the request") && findWait(st, statusapi.WaitLocal, "own") != nil
	})
	w := findWait(at, statusapi.WaitReceive, "loss")
	if w.Waiter != a.Task().String() || w.On != b.Task().String() || w.Step != "7" || w.Since.Before(begin.Add(-time.Second)) || w.Since.After(time.Now()) || w.Seconds < 0 {
		t.Errorf("%+v", w)
	}
	if at.Waits.Total != 2 || !at.Waits.Complete || at.Peers[0].Waits != 1 {
		t.Errorf("%+v, %+v", at.Waits, at.Peers)
	}
	w = findWait(statusWhen(t, b, "asked", waitsFor(statusapi.WaitBegin, "loss")), statusapi.WaitBegin, "loss")
	if w.Waiter != a.Task().String() || w.On != b.Task().String() || w.Step != "7" {
		t.Errorf("%+v", w)
	}
	if err := b.Send(7, a.Task().String(), "los", x, false); err != nil {
		t.Fatal(err)
	}
	st := statusWhen(t, b, "asked in a step that has begun", waitsFor(statusapi.WaitPeer, "loss"))
	if len(st.Steps.Oldest) != 1 || st.Steps.Total != 1 || !st.Steps.Oldest[0].Begun || st.Steps.Oldest[0].Unreceived != 1 ||
		!slices.Equal(st.Steps.Oldest[0].UnreceivedKeys, []string{"los for " + a.Task().String()}) {
		t.Errorf("%+v", st.Steps)
	}
	for _, send := range []func() error{
		func() error { return b.Send(7, a.Task().String(), "loss", x, false) }, func() error { return a.Send(7, a.Task().String(), "own", x, false) },
	} {
		if err := send(); err != nil {
			t.Fatal(err)
		}
	}
	wantFloat(t, wait(t, loss, "the value"), 1)
	wantFloat(t, wait(t, local, "the value"), 1)
	statusWhen(t, a, "without waits", func(st *statusapi.Status) bool { return st.Waits.Total == 0 })
}

// TestStatusSaysThatAPeerIsNotReached: a receive from a task that is not up has the reason.
func TestStatusSaysThatAPeerIsNotReached(t *testing.T) {
	at := twoPlaces(t, withMetrics)
	a := start(t, at(0), Options{})
	got := a.recv(1, "/job:worker/replica:0/task:1", "x")
	statusWhen(t, a, "not reached", func(st *statusapi.Status) bool {
		w := findWait(st, statusapi.WaitReceive, "x")
		return w != nil && strings.Contains(w.Detail, "not reached") && st.Peers[0].State != "up"
	})
	a.AbortStep(1, errors.New("enough"))
	if o := wait(t, got, "the end"); o.err == nil {
		t.Error("a value came")
	}
}

// TestStatusHasWatchers: who watches what, from where, which version it has, and how it came.
func TestStatusHasWatchers(t *testing.T) {
	s := start(t, settings(withMetrics), Options{})
	c := dial(t, Config{}, s.Addr().String())
	x := float(t, 1)
	defer x.Release()
	update := func() {
		if _, err := s.Catalog().Update(t.Context(), "m", []*tensor.Tensor{x.Named("x")}, checkpoint.UpdateOptions{Number: 1 << 60}); err != nil {
			t.Fatal(err)
		}
	}
	update()
	for v, err := range c.Puller().Watch(t.Context(), checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: "m"}}) {
		if err != nil {
			t.Fatal(err)
		}
		st := statusWhen(t, s, "with a watcher that has the version", func(st *statusapi.Status) bool {
			return len(st.Publish.Watchers) == 1 && st.Publish.Watchers[0].By == "whole"
		})
		w, p := st.Publish.Watchers[0], st.Publish.Publications[0]
		if w.Watcher != c.Task().String() || w.Publication != "m" || !strings.HasPrefix(w.Address, "127.0.0.1:") || w.Number != "1152921504606846976" ||
			w.Behind == nil || *w.Behind != 0 || w.Since.IsZero() || w.Version != p.Version || p.Number != w.Number || p.Watchers != 1 || st.Publish.TotalWatchers != 1 {
			t.Errorf("%+v of %+v", w, p)
		}
		v.Release()
		break
	}
	statusWhen(t, s, "without watchers", func(st *statusapi.Status) bool { return st.Publish.TotalWatchers == 0 && len(st.Publish.Watchers) == 0 })
}

// TestStatusHasTheBeginningOfALongName: whoever watches a publication that is not there has chosen its name.
func TestStatusHasTheBeginningOfALongName(t *testing.T) {
	s := start(t, settings(withMetrics), Options{})
	c := dial(t, Config{}, s.Addr().String())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, err := range c.Puller().Watch(ctx, checkpoint.WatchRequest{Pull: checkpoint.PullRequest{Publication: strings.Repeat("\x01", 16<<10)}}) {
			if ctx.Err() == nil {
				t.Error("the watch has yielded or ended: ", err)
			}
		}
	}()
	defer func() { cancel(); <-done }()
	st := statusWhen(t, s, "with a watcher", func(st *statusapi.Status) bool { return len(st.Publish.Watchers) == 1 })
	if name := st.Publish.Watchers[0].Publication; name != strings.Repeat("\x01", 1024)+"..." {
		t.Errorf("the name has %d bytes", len(name))
	}
}

// TestStatusSaysNotWhatAnOlderWatcherHas: it has not told that.
func TestStatusSaysNotWhatAnOlderWatcherHas(t *testing.T) {
	s := start(t, settings(withMetrics), Options{})
	x := float(t, 1)
	defer x.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("x")); err != nil {
		t.Fatal(err)
	}
	w, err := trystgrpc.NewPublicationsClient(dialPlainly(t, s.Addr().String())).Watch(t.Context(), &trystpb.WatchRequest{Publication: "m"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Recv(); err != nil {
		t.Fatal(err)
	}
	st := statusWhen(t, s, "with a watcher", func(st *statusapi.Status) bool { return len(st.Publish.Watchers) == 1 })
	if w := st.Publish.Watchers[0]; w.Watcher != "" || w.Number != "" || w.Behind != nil || w.Address == "" {
		t.Errorf("%+v", w)
	}
}

// TestStatusHasPullsAndTheirProgress: who pulls what, from where, and how much was handed to it.
func TestStatusHasPullsAndTheirProgress(t *testing.T) {
	s := start(t, settings(withMetrics), Options{})
	x, y := float(t, 1), float(t, 2)
	defer x.Release()
	defer y.Release()
	if _, err := s.Catalog().PublishTensors(t.Context(), "m", x.Named("x"), y.Named("y")); err != nil {
		t.Fatal(err)
	}
	c := dial(t, Config{}, s.Addr().String())
	for got, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		got.Release()
		st := statusOver(t, s)
		if len(st.Publish.Pulls) == 1 {
			p := st.Publish.Pulls[0]
			if p.Puller != c.Task().String() || p.Publication != "m" || p.Bytes != 8 || p.Sent == 0 || p.Sent > 8 || !strings.HasPrefix(p.Address, "127.0.0.1:") || p.Tensors != 2 {
				t.Errorf("%+v", p)
			}
		}
	}
	st := statusWhen(t, s, "without pulls", func(st *statusapi.Status) bool { return len(st.Publish.Pulls) == 0 })
	if len(st.Publish.Publications) != 1 || st.Publish.Publications[0].Name != "m" || st.Publish.Publications[0].Bytes != 8 || !st.Publish.Publications[0].Current {
		t.Errorf("%+v", st.Publish)
	}
}

// TestStatusDescribesTheProcess: what it is, its settings and its limits.
func TestStatusDescribesTheProcess(t *testing.T) {
	s := start(t, settings(withMetrics, func(c *Config) { c.PeerTimeout = 3 * time.Second }), Options{Version: "v9.8.7"})
	st := statusOver(t, s)
	p := st.Process
	if p.Task != s.Task().String() || p.Address != s.Addr().String() || p.Build.Version != "v9.8.7" || p.State != "ready" || p.Incarnation != fmt.Sprintf("%016x", s.Incarnation()) || p.PID != os.Getpid() {
		t.Errorf("%+v", p)
	}
	if want := (statusapi.Setting{Key: "peer-timeout", Value: "3s"}); !slices.Contains(st.Settings, want) || slices.ContainsFunc(st.Settings, func(v statusapi.Setting) bool { return v.Key == "transport" }) {
		t.Errorf("%+v", st.Settings)
	}
	for _, l := range st.Limits {
		if l.Most < 0 || l.Used < 0 || l.Most > 0 && l.Used > l.Most {
			t.Errorf("%+v", l)
		}
	}
	if st.Peers == nil || st.Waits.Oldest == nil || st.Warnings == nil || st.Routes == nil || st.History == nil {
		t.Errorf("a list is null: %+v", st)
	}
}

// TestStatusHasTheLastWarnings: from WARN on, also those that the log leaves out, without what the log has at INFO.
func TestStatusHasTheLastWarnings(t *testing.T) {
	s := start(t, settings(withMetrics), Options{Logger: slog.New(slog.NewTextHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelError}))})
	s.log.Info("nothing")
	s.log.With("peer", "b").Warn("a thing happened", "reason", "QPN 1")
	st := statusWhen(t, s, "warned", func(st *statusapi.Status) bool { return len(st.Warnings) > 0 })
	w := st.Warnings[0]
	if w.Message != "a thing happened" || w.Level != "WARN" || w.Count != 1 || !slices.Contains(w.Attributes, statusapi.Attribute{Key: "peer", Value: "b"}) {
		t.Errorf("%+v", w)
	}
	if slices.ContainsFunc(st.Warnings, func(w statusapi.Warning) bool { return w.Message == "nothing" }) {
		t.Errorf("%+v", st.Warnings)
	}
}

// BenchmarkStatus takes a snapshot with 1,000 peers, and encodes it.
func BenchmarkStatus(b *testing.B) {
	c := settings(withMetrics)
	for i := range 1000 {
		c.Cluster = map[string][]string{"worker": append(c.Cluster["worker"], fmt.Sprintf("127.0.0.1:%d", 10000+i))}
	}
	s, err := Start(b.Context(), c, Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	for i := range int64(1000) {
		s.recv(i%10, s.Task().String(), fmt.Sprint("k", i))
	}
	b.Run("take", func(b *testing.B) {
		for b.Loop() {
			s.status()
		}
	})
	b.Run("encode", func(b *testing.B) {
		st := s.status()
		for b.Loop() {
			if _, err := json.Marshal(st); err != nil {
				b.Fatal(err)
			}
		}
	})
}
