package server

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tryst-rdma/tryst/internal/trace"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
)

// traceHandler records what runs for some time, by the parameter seconds, and serves it as a trace of
// Chrome. record returns when its context has ended.
func traceHandler(record func(context.Context) []*tfpb.LabeledStepStats) http.Handler {
	places := make(chan struct{}, maxTraces)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		took := traceTime
		if text := r.URL.Query().Get("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			took = time.Duration(seconds * float64(time.Second))
			if err != nil || !(seconds > 0) || seconds > maxTraceTime.Seconds() {
				http.Error(w, "seconds="+strconv.Quote(text)+": want a number above 0, and at most "+strconv.Itoa(int(maxTraceTime.Seconds())), http.StatusBadRequest)
				return
			}
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
		default:
			http.Error(w, "there are "+strconv.Itoa(maxTraces)+" recordings under way already; try again later", http.StatusServiceUnavailable)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), took)
		defer cancel()
		steps := record(ctx)
		if r.Context().Err() != nil {
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout)) // only the writers of tests have no deadline
		w.Header().Set("Content-Type", "application/json")
		_ = trace.WriteChrome(w, steps) // the client has gone
	})
}
