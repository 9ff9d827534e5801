package httpserver

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// TestTracesAreBounded: a recording has a longest time, and there are few at once.
func TestTracesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var released atomic.Int32
		h := traceHandler(func(ctx context.Context) ([]*tfpb.LabeledStepStats, func()) {
			<-ctx.Done()
			return nil, func() { released.Add(1) }
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
		if n := released.Load(); n != maxTraces+1 {
			t.Errorf("the memory of %d recordings was given back, of %d", n, maxTraces+1)
		}
	})
}
