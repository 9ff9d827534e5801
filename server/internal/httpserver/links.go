package httpserver

import (
	"encoding/json"
	"net/http"
)

// linksHandler answers with the links as a JSON array. At most maxScrapes requests are answered at
// once.
func linksHandler(links func() any, refuse refuser) http.Handler {
	return atOnce(maxScrapes, "requests for links", refuse, func(w http.ResponseWriter, _ *http.Request) {
		setWriteDeadline(w)
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(links()) // fails only when the client has gone
	})
}
