package httpserver

import (
	"net/http"
	"time"

	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/lograte"
)

// refuser answers a request to an HTTP listener with an error. reason is one of listen.RefusedBy...
type refuser func(w http.ResponseWriter, r *http.Request, reason string, code int, text string)

// newRefuser returns the refuser of the listener that a setting has the address of. It counts all refusals and logs few.
func newRefuser(all *listen.Listeners, setting string) refuser {
	var seldom lograte.Limiter
	return func(w http.ResponseWriter, r *http.Request, reason string, code int, text string) {
		all.Refused.WithLabelValues(setting, reason).Inc()
		if not, ok := seldom.Now(); ok {
			all.Log.Warn("refusing an HTTP request", "setting", setting, "address", r.RemoteAddr, "reason", reason, "answer", code, "not_logged", not)
		}
		http.Error(w, text, code)
	}
}

// atOnce passes at most n requests at a time to h, and refuses the others. what names the requests.
func atOnce(n int, what string, refuse refuser, h http.HandlerFunc) http.HandlerFunc {
	places := make(chan struct{}, n)
	return func(w http.ResponseWriter, r *http.Request) {
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			h(w, r)
		default:
			refuse(w, r, listen.RefusedByCalls, http.StatusServiceUnavailable, "there are too many "+what+" already; try again later")
		}
	}
}

// setWriteDeadline bounds the time that a client takes to read an answer.
func setWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout)) // only the writers of tests have no deadline
}
