package httpserver

import (
	"io"
	"net/http"
)

// probe serves an HTTP probe: 200 with the state, or 503 with the reason that check returns.
func probe(state string, check func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		text := state
		if why := check(); why != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			text = "not " + state + ": " + why
		}
		_, _ = io.WriteString(w, text+"\n") // the client sees a broken connection itself
	}
}
