package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tryst-rdma/tryst/status"
)

// headerTimeout bounds how long a client of the metrics may take for its
// request line and headers, and for its next request, so that idle connections
// do not pile up.
const headerTimeout = 10 * time.Second

// maxScrapes and scrapeTimeout bound the answers with metrics that are under way: more than one
// monitor asks for, and longer than one waits. A client that does not read holds one until then.
const (
	maxScrapes    = 8
	scrapeTimeout = 30 * time.Second
)

// httpServer serves metrics or profiles on an address of its own. It owns the
// goroutine that accepts; close waits for it.
type httpServer struct {
	addr   net.Addr
	server *http.Server
	done   chan struct{}
}

func metricsHandler(g prometheus.Gatherer) http.Handler {
	scrape := promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout)) // a writer that has none is a test's
		scrape.ServeHTTP(w, r)
	})
	return mux
}

func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// startHTTP serves h at address; setting is the name of the setting that gave
// the address, for errors.
func startHTTP(ctx context.Context, setting, address string, h http.Handler, log *slog.Logger) (*httpServer, error) {
	lis, err := listen(ctx, setting, address)
	if err != nil {
		return nil, err
	}
	s := &httpServer{
		addr:   lis.Addr(),
		server: &http.Server{Handler: h, ReadHeaderTimeout: headerTimeout, IdleTimeout: headerTimeout},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(lis); !errors.Is(err, http.ErrServerClosed) {
			log.Error("HTTP listener ended", "setting", setting, "error", err)
		}
	}()
	log.Info("serving HTTP", "setting", setting, "address", lis.Addr().String())
	return s, nil
}

func (s *httpServer) close() {
	_ = s.server.Close() // the listener's own error is of no use any more
	<-s.done
}

// listen opens a TCP listener with an error for people.
func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: cannot listen on %s: %w", setting, address, err)
	}
	return lis, nil
}
