package httpserver

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/overview"
)

func statusOf(text string) func(context.Context) (overview.Encoded, error) {
	return func(context.Context) (overview.Encoded, error) {
		return overview.Encoded{Full: []byte(text + "full"), Event: []byte(text + "event")}, nil
	}
}

// never changes.
func never() <-chan struct{} { return nil }

// TestChangeIsSentAtOnce: an event comes when something changed, and at most one before the time of the next.
func TestChangeIsSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var events []time.Duration
		begin, changes := time.Now(), make(chan struct{})
		status := func(context.Context) (overview.Encoded, error) {
			events = append(events, time.Since(begin))
			return overview.Encoded{}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*eventInterval+eventInterval/2)
		defer cancel()
		go func() { // each interval begins with three changes
			for ctx.Err() == nil {
				for range 3 {
					time.Sleep(eventInterval / 8)
					select {
					case changes <- struct{}{}:
					default:
					}
				}
				time.Sleep(eventInterval * 5 / 8)
			}
		}()
		sendEvents(ctx, httptest.NewRecorder(), status, func() <-chan struct{} { return changes }, nil)
		if want := []time.Duration{0, eventInterval / 8, eventInterval, eventInterval * 9 / 8, 2 * eventInterval, eventInterval * 17 / 8}; !slices.Equal(events, want) {
			t.Errorf("%v, want %v", events, want)
		}
		time.Sleep(eventInterval)
	})
}

// TestStatusIsServed: as one line of JSON that nobody keeps.
func TestStatusIsServed(t *testing.T) {
	r := httptest.NewRecorder()
	statusHandler(statusOf("{}"), refusePlainly).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/api/status", nil))
	if r.Code != http.StatusOK || r.Body.String() != "{}full\n" || r.Header().Get("Cache-Control") != "no-store" || r.Header().Get("Content-Type") != "application/json" {
		t.Errorf("%d %v %s", r.Code, r.Header(), r.Body)
	}
}

// TestEventsComeEachSecond: the first with the history, until the time of a stream has passed.
func TestEventsComeEachSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, begin := httptest.NewRecorder(), time.Now()
		eventsHandler(statusOf("x"), never, nil, refusePlainly).ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/api/events", nil))
		if took := time.Since(begin); took != streamTime {
			t.Errorf("a stream took %v", took)
		}
		events := strings.Split(strings.TrimSuffix(r.Body.String(), "\n\n"), "\n\n")
		if n := int(streamTime / eventInterval); len(events) < n || len(events) > n+1 || events[0] != "data: xfull" || events[1] != "data: xevent" || events[len(events)-1] != "data: xevent" {
			t.Errorf("%d events: %q", len(events), events[:2])
		}
		if r.Header().Get("Content-Type") != "text/event-stream" {
			t.Errorf("%v", r.Header())
		}
	})
}

// TestStreamsOfEventsAreBounded: those of one address, and all; Close of the server ends them.
func TestStreamsOfEventsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reasons []string
		refuse := func(w http.ResponseWriter, _ *http.Request, reason string, code int, text string) {
			reasons = append(reasons, reason)
			http.Error(w, text, code)
		}
		closing, done := make(chan struct{}), make(chan struct{}, maxStreams)
		h := eventsHandler(statusOf("x"), never, closing, refuse)
		begin := func(address string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/api/events", nil)
			r.RemoteAddr = address
			go func() {
				h.ServeHTTP(w, r)
				done <- struct{}{}
			}()
			synctest.Wait()
			return w
		}
		for range maxStreamsOfAddress {
			begin("10.0.0.1:1")
		}
		if w := begin("10.0.0.1:2"); w.Code != http.StatusServiceUnavailable || len(reasons) != 1 || reasons[0] != listen.RefusedByCalls {
			t.Errorf("one more of an address: %d, %q", w.Code, reasons)
		}
		<-done
		for i := range maxStreams - maxStreamsOfAddress {
			begin("10.0.1." + string(rune('0'+i%10)) + string(rune('0'+i/10)) + ":1")
		}
		if w := begin("10.0.2.1:1"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("one more in all: %d", w.Code)
		}
		<-done
		close(closing)
		for range maxStreams {
			<-done
		}
		if w := begin("10.0.2.1:1"); w.Code != http.StatusOK {
			t.Errorf("afterwards: %d", w.Code)
		}
		<-done
	})
}

// TestStreamEndsWithItsClient: a client that goes away holds nothing.
func TestStreamEndsWithItsClient(t *testing.T) {
	s, _ := start(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for range 2 * maxStreamsOfAddress {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr(MetricsKey).String()+"/api/events", nil)
		if err != nil {
			t.Fatal(err)
		}
		for {
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode == http.StatusServiceUnavailable { // the one before has not noticed its end
				_ = resp.Body.Close()
				continue
			}
			if line, err := bufio.NewReader(resp.Body).ReadString('\n'); err != nil || line != "data: {}\n" {
				t.Errorf("%q, %v", line, err)
			}
			_ = resp.Body.Close()
			break
		}
	}
}

// TestPageIsServedAlone: at / and nowhere else, with a policy that lets it use nothing from elsewhere.
func TestPageIsServedAlone(t *testing.T) {
	s, _ := start(t)
	get := func(path string) (*http.Response, string) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.Addr(MetricsKey).String()+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, string(body)
	}
	resp, body := get("/")
	policy := resp.Header.Get("Content-Security-Policy")
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "<title>") || !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("%s %q", resp.Status, policy)
	}
	if resp, _ := get("/x"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("/x: %s", resp.Status)
	}
}

// TestRequestsForTheStatusAreBounded: many may wait for the answers of peers at once, one more is refused, and then all are answered.
func TestRequestsForTheStatusAreBounded(t *testing.T) {
	asking, answered := make(chan struct{}), make(chan struct{})
	h := statusHandler(func(context.Context) (overview.Encoded, error) {
		asking <- struct{}{}
		<-answered
		return overview.Encoded{Full: []byte("{}")}, nil
	}, refusePlainly)
	get := func() *httptest.ResponseRecorder {
		r := httptest.NewRecorder()
		h.ServeHTTP(r, httptest.NewRequest(http.MethodGet, "/api/status", nil))
		return r
	}
	all := make(chan *httptest.ResponseRecorder)
	const pollers = 64
	for range pollers {
		go func() { all <- get() }()
		<-asking
	}
	if r := get(); r.Code != http.StatusServiceUnavailable {
		t.Errorf("one more got %d", r.Code)
	}
	close(answered)
	for range pollers {
		if r := <-all; r.Code != http.StatusOK || r.Body.String() != "{}\n" {
			t.Errorf("one of those under way got %d, %q", r.Code, r.Body)
		}
	}
}
