package command

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// TestTopPrintsTheStateOnce where stdout is no terminal; what does not answer is an error that names it, after the others.
func TestTopPrintsTheStateOnce(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != statusapi.Path {
			http.NotFound(w, r)
			return
		}
		_, _ = w.Write([]byte(`{"version":1,"process":{"task":"/job:worker/replica:0/task:3","state":"ready"},"waits":{"complete":true,"total":1,"oldest":[{"kind":"local","key":"loss","step":"7","waiter":"/job:worker/replica:0/task:3","on":"/job:worker/replica:0/task:3","seconds":61,"detail":"this process has not sent the value"}]}}`))
	}))
	defer s.Close()
	at := strings.TrimPrefix(s.URL, "http://")
	for _, args := range [][]string{{"top", at}, {"top", "--once", s.URL, s.URL}} {
		out := did(t, tryst(t, args...))
		if !strings.Contains(out, "worker:3 ready") || !strings.Contains(out, "loss") || !strings.Contains(out, "this process has not sent the value") || strings.Contains(out, "\x1b") {
			t.Errorf("%q:\n%s", args, out)
		}
	}
	r := tryst(t, "top", at, "127.0.0.1:1")
	if r.code != 1 || !strings.Contains(r.err, "127.0.0.1:1: ") || !strings.Contains(r.out, "loss") {
		t.Errorf("%+v", r)
	}
}
