package httpserver

import (
	"context"
	"net/http"

	"github.com/tryst-rdma/tryst/server/internal/overview"
)

// statusHandler answers with the status as JSON. At most maxStatuses requests are answered at once: those that wait for answers of peers
// have a place, and share the snapshot.
func statusHandler(status func(context.Context) (overview.Encoded, error), refuse refuser) http.Handler {
	return atOnce(maxStatuses, "requests for the status", refuse, func(w http.ResponseWriter, r *http.Request) {
		setWriteDeadline(w)
		now, err := status(r.Context())
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Cache-Control", "no-store")
		_, _ = w.Write(now.Full) // both fail only when the client has gone
		_, _ = w.Write([]byte{'\n'})
	})
}
