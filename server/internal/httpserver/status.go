package httpserver

import (
	"net/http"
	"slices"

	"github.com/tryst-rdma/tryst/server/internal/overview"
)

// statusHandler answers with the status as JSON. At most maxScrapes requests are answered at once.
func statusHandler(status func() (overview.Encoded, error), refuse refuser) http.Handler {
	return atOnce(maxScrapes, "requests for the status", refuse, func(w http.ResponseWriter, _ *http.Request) {
		setWriteDeadline(w)
		now, err := status()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(append(slices.Clip(now.Full), '\n')) // fails only when the client has gone
	})
}
