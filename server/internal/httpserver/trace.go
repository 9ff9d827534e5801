package httpserver

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/tryst-rdma/tryst/internal/trace"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/server/internal/listen"
)

// traceHandler records what runs for some time, by the parameter seconds, and serves it as a trace of
// Chrome. record returns when its context has ended; release gives back the memory of the records.
func traceHandler(record func(context.Context) (steps []*tfpb.LabeledStepStats, release func()), refuse refuser) http.Handler {
	return atOnce(maxTraces, "recordings under way", refuse, func(w http.ResponseWriter, r *http.Request) {
		took := traceTime
		if text := r.URL.Query().Get("seconds"); text != "" {
			seconds, err := strconv.ParseFloat(text, 64)
			took = time.Duration(seconds * float64(time.Second))
			answer := "seconds=" + strconv.Quote(text) + ": want a number above 0, and at most " + strconv.Itoa(int(maxTraceTime.Seconds()))
			switch {
			case err != nil || !(seconds > 0):
				http.Error(w, answer, http.StatusBadRequest)
				return
			case seconds > maxTraceTime.Seconds():
				refuse(w, r, listen.RefusedByTime, http.StatusBadRequest, answer)
				return
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), took)
		defer cancel()
		steps, release := record(ctx)
		defer release()
		if r.Context().Err() != nil {
			return
		}
		setWriteDeadline(w)
		w.Header().Set("Content-Type", "application/json")
		_ = trace.WriteChrome(w, steps) // the client has gone
	})
}
