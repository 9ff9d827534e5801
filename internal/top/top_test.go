package top

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/charmbracelet/x/ansi"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

func task(i int) string { return fmt.Sprint("/job:worker/replica:0/task:", i) }

// statuses are those of two processes: worker 0 waits for a value of worker 1, which says why.
func statuses() (a, b *statusapi.Status) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	wait := statusapi.Wait{Kind: statusapi.WaitReceive, Waiter: task(0), On: task(1), Key: "gradients/missing", Step: "7", Since: now.Add(-time.Minute), Seconds: 60, Detail: "the peer has the request, and has not sent the value"}
	asked := wait
	asked.Kind, asked.Seconds, asked.Detail = statusapi.WaitPeer, 59.9, "the peer has asked for the value, and this process has not sent it"
	other := statusapi.Wait{Kind: statusapi.WaitLocal, Waiter: task(0), On: task(0), Key: "own\x1b[31m", Step: "8", Seconds: 1, Detail: "this process has not sent the value"}
	a = &statusapi.Status{Version: 1, Time: now, Process: statusapi.Process{Task: task(0), State: "ready", UptimeSeconds: 3700}}
	b = &statusapi.Status{Version: 1, Time: now, Process: statusapi.Process{Task: task(1), State: "ready"}}
	a.Waits = statusapi.Waits{Oldest: []statusapi.Wait{wait, other}, Total: 2, Complete: true}
	b.Waits = statusapi.Waits{Oldest: []statusapi.Wait{asked}, Total: 1, Complete: true}
	a.Peers = []statusapi.Peer{
		{Task: task(1), Route: "shm", State: "up", Counts: statusapi.Counts{SentPerSecond: 1_500_000, SentBytes: 3e9}},
		{Task: task(2), Route: "grpc", State: "down", Error: "connection refused"},
		{Task: task(10), Route: "tcp", State: "up", Counts: statusapi.Counts{SentPerSecond: 2_500_000}},
	}
	a.Limits = []statusapi.Limit{{Name: "pulls", Used: 95, Most: 100}, {Name: "memory", Used: 1 << 30, Unit: "bytes"}}
	a.Publish.Publications = []statusapi.Publication{{Name: "m"}, {Name: "m", Current: true, Watchers: 3}}
	a.Publish.Pulls = []statusapi.Pull{{Publication: "m", Puller: task(3), Address: "10.0.0.1:5", Bytes: 100, Sent: 25}}
	a.Warnings = []statusapi.Warning{{Time: now.Add(-time.Hour), Level: "WARN", Message: "a thing", Count: 3, Attributes: []statusapi.Attribute{{Key: "reason", Value: "x"}}}}
	a.History = &statusapi.History{Routes: []statusapi.RouteHistory{{Route: "shm", Sent: []int64{0, 1, 8}, Received: []int64{0, 0, 0}}}}
	return a, b
}

func model(width, height int) Model {
	m := New([]string{"a:1", "b:1"})
	a, b := statuses()
	for _, message := range []any{Size{width, height}, Fetched{Address: "a:1", Time: a.Time, Status: a}, Fetched{Address: "b:1", Time: a.Time, Status: b}} {
		m = m.Update(message)
	}
	return m
}

func keys(m Model, names ...string) Model {
	for _, k := range names {
		m = m.Update(Key(k))
	}
	return m
}

func TestPullShowsTheWatchersOfItsPublication(t *testing.T) {
	m := model(120, 40)
	for m.tab != tabPulls {
		m = keys(m, "tab")
	}
	if detail := screen(keys(m, "enter")); !strings.Contains(detail, "watchers     3 of the publication") {
		t.Error(detail)
	}
}

func screen(m Model) string { return ansi.Strip(strings.Join(m.Lines(), "\n")) }

// lineWith returns the first line of the screen that has a text.
func lineWith(t *testing.T, m Model, text string) string {
	t.Helper()
	for line := range strings.SplitSeq(screen(m), "\n") {
		if strings.Contains(line, text) {
			return line
		}
	}
	t.Fatalf("no %q in\n%s", text, screen(m))
	return ""
}

// TestBothSidesOfAWaitAreOneLine: since when from the receiver, and what is missing from the sender. The longest is first.
func TestBothSidesOfAWaitAreOneLine(t *testing.T) {
	m := model(160, 24)
	if n := strings.Count(screen(m), "gradients/missing"); n != 1 {
		t.Errorf("%d lines:\n%s", n, screen(m))
	}
	line := lineWith(t, m, "gradients/missing")
	for _, want := range []string{"60s", "7", "worker:0", "worker:1", "this process has not sent it"} {
		if !strings.Contains(line, want) {
			t.Errorf("%q has no %q", line, want)
		}
	}
	lines := strings.Split(screen(m), "\n")
	if !strings.Contains(lines[4], "gradients") || !strings.Contains(lines[5], "own") {
		t.Errorf("\n%s", screen(m))
	}
	if detail := screen(keys(m, "enter")); !strings.Contains(detail, "seen by   "+task(0)+", "+task(1)) {
		t.Errorf("\n%s", detail)
	}
}

// TestSilentPeerShows: in the peers, with the reason, and it does not count as up.
func TestSilentPeerShows(t *testing.T) {
	a, _ := statuses()
	a.Peers[0].State, a.Peers[0].Error = statusapi.PeerSilent, "nothing has come for 1.0 s"
	m := New([]string{"a:1"}).Update(Fetched{Address: "a:1", Time: a.Time, Status: a})
	once := strings.Join(m.Once(160), "\n")
	if !regexp.MustCompile(`worker:0 +worker:1 +silent .*nothing has come for 1.0 s`).MatchString(once) || !strings.Contains(once, "peers 1/3") {
		t.Errorf("\n%s", once)
	}
}

// TestScreenFitsTheTerminal: no view has more lines or wider ones, at any size, and none steers the terminal.
func TestScreenFitsTheTerminal(t *testing.T) {
	for _, size := range []Size{{80, 24}, {80, 12}, {100, 30}, {200, 60}, {20, 5}, {1, 1}, {0, 0}} {
		m := model(size.Width, size.Height)
		for view := range tabs {
			for _, more := range [][]string{nil, {"enter"}, {"?"}, {"/", "x"}, {"p", "down", "s", "r"}} {
				at := keys(m, append([]string{fmt.Sprint(view + 1)}, more...)...)
				lines := at.Lines()
				if len(lines) > max(size.Height, 1) {
					t.Errorf("%v, view %d, %q: %d lines", size, view, more, len(lines))
				}
				for _, line := range lines {
					if w := ansi.StringWidth(line); w > size.Width {
						t.Errorf("%v, view %d, %q: %d wide: %q", size, view, more, w, line)
					}
					if strings.ContainsAny(ansi.Strip(line), "\x1b\n\r\x07") {
						t.Errorf("%q", line)
					}
				}
			}
		}
	}
}

// TestAt80ColumnsTheKeyIsWhole: and who waits for whom.
func TestAt80ColumnsTheKeyIsWhole(t *testing.T) {
	line := lineWith(t, model(80, 24), "gradients/missing")
	if !strings.Contains(line, "worker:0") || !strings.Contains(line, "worker:1") {
		t.Errorf("%q", line)
	}
}

// TestRowsAreFilteredAndSorted: by words, and by each column, numbers by number.
func TestRowsAreFilteredAndSorted(t *testing.T) {
	m := keys(model(160, 24), "2")
	order := func(m Model) (names []string) {
		for _, row := range m.table().rows {
			names = append(names, row[1].text)
		}
		return names
	}
	if got := fmt.Sprint(order(m)); got != "[worker:1 worker:2 worker:10]" {
		t.Errorf("as it comes: %s", got)
	}
	m = keys(m, "s", "s", "s", "s", "s") // sent/s
	if got := fmt.Sprint(order(m)); got != "[worker:10 worker:1 worker:2]" {
		t.Errorf("by what is sent: %s", got)
	}
	if got := fmt.Sprint(order(keys(m, "r"))); got != "[worker:2 worker:1 worker:10]" {
		t.Errorf("the other way round: %s", got)
	}
	m = keys(m, "/", "u", "p", "space", "T", "c", "p", "enter")
	if got := fmt.Sprint(order(m)); got != "[worker:10]" {
		t.Errorf("filtered: %s", got)
	}
	m = keys(m, "/", "z", "backspace", "z", "enter")
	if !strings.Contains(screen(m), "nothing matches z") {
		t.Errorf("\n%s", screen(m))
	}
	if got := order(keys(m, "esc")); len(got) != 3 {
		t.Errorf("without filter: %s", got)
	}
}

// TestAProcessThatIsSilentIsMarked: with its error and for how long, while the last status stays.
func TestAProcessThatIsSilentIsMarked(t *testing.T) {
	m := model(160, 24)
	a, _ := statuses()
	m = m.Update(Fetched{Address: "a:1", Time: a.Time.Add(4 * time.Second), Err: errors.New("connection refused")})
	line := lineWith(t, m, "no answer for 4.0s: connection refused")
	if !strings.Contains(line, "worker:0") || !strings.Contains(screen(m), "gradients/missing") {
		t.Errorf("\n%s", screen(m))
	}
	if m := New([]string{"x:1"}).Update(Fetched{Address: "x:1", Err: errors.New("no route")}); !strings.Contains(screen(m), "x:1 no route") || len(m.Failed()) != 1 {
		t.Errorf("\n%s", screen(m))
	}
}

// TestPauseKeepsTheScreen until it is pressed again.
func TestPauseKeepsTheScreen(t *testing.T) {
	m := keys(model(160, 24), "p")
	a, _ := statuses()
	a.Waits.Oldest = nil
	if m = m.Update(Fetched{Address: "a:1", Time: a.Time, Status: a}); !strings.Contains(screen(m), "own") || !strings.Contains(screen(m), "PAUSED") {
		t.Errorf("\n%s", screen(m))
	}
	if m = keys(m, "p").Update(Fetched{Address: "a:1", Time: a.Time, Status: a}); strings.Contains(screen(m), "own") {
		t.Errorf("\n%s", screen(m))
	}
	if !keys(m, "q").Done() || !keys(m, "/", "ctrl+c").Done() || keys(m, "/", "q").Done() {
		t.Error("q quits, but not in the filter; Ctrl-C always")
	}
}

// TestOnceHasAllTablesAsText: without colours, for a pipe.
func TestOnceHasAllTablesAsText(t *testing.T) {
	text := strings.Join(model(160, 24).Once(120), "\n")
	for _, want := range []string{"Waits\n", "gradients/missing", "Peers\n", "connection refused", "Pulls\n", "███", "Warnings\n", "a thing reason=x", "worker:0 ready"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b") {
		t.Errorf("%q", text)
	}
}

// TestFetch reads a status, and says what is wrong with any other answer.
func TestFetch(t *testing.T) {
	a, _ := statuses()
	good, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		code       int
		body, want string
	}{
		{200, string(good), ""}, {404, "404 page not found", "no Tryst process"}, {503, "too many\x1b[2J", "503 Service Unavailable: too many"},
		{200, "<html>", "no status"}, {200, `{"version":2}`, "version 2"},
	} {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != statusapi.Path {
				t.Errorf("%s", r.URL)
			}
			w.WriteHeader(tt.code)
			_, _ = w.Write([]byte(tt.body))
		}))
		for _, address := range []string{strings.TrimPrefix(s.URL, "http://"), s.URL + "/", s.URL[strings.LastIndex(s.URL, ":"):], s.URL[strings.LastIndex(s.URL, ":")+1:]} {
			f := Client{s.Client()}.Fetch(t.Context(), address)
			if tt.want == "" && (f.Err != nil || f.Status.Process.Task != task(0)) || tt.want != "" && (f.Err == nil || !strings.Contains(f.Err.Error(), tt.want) || strings.Contains(f.Err.Error(), "\x1b")) {
				t.Errorf("%d %s: %v", tt.code, tt.body, f.Err)
			}
		}
		s.Close()
	}
	if f := (Client{http.DefaultClient}).Fetch(t.Context(), "127.0.0.1:1"); f.Err == nil || strings.Contains(f.Err.Error(), "http://") {
		t.Errorf("%v", f.Err)
	}
}

// FuzzStatus: whatever a process answers is shown within the screen, and steers no terminal.
func FuzzStatus(f *testing.F) {
	a, b := statuses()
	for _, s := range []*statusapi.Status{a, b} {
		body, err := json.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
	f.Add([]byte(`{"version":1,"waits":{"oldest":[{"key":"\u001b]0;x\u0007","seconds":1e308}]},"peers":[{}],"steps":{"oldest":[{"step":"-"}]}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		s, err := parse(body)
		if err != nil {
			return
		}
		m := New([]string{"x"}).Update(Fetched{Address: "x", Status: s})
		for view := range tabs {
			for _, line := range keys(m, fmt.Sprint(view+1), "enter").Lines() {
				if ansi.StringWidth(line) > leastWidth || strings.ContainsAny(ansi.Strip(line), "\x1b\a\b\n") {
					t.Errorf("%q", line)
				}
			}
		}
		m.Once(100)
	})
}
