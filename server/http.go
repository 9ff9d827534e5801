package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/lograte"
)

// httpServer serves metrics and probes, or profiles, on its own address. It owns the goroutine that accepts
// connections; close waits for it.
type httpServer struct {
	addr   net.Addr
	server *http.Server
	done   chan struct{}
}

// operatorHandler serves what operators and their systems ask for: metrics, links, and the probes of
// Kubernetes and of load balancers.
func (s *Server) operatorHandler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(s.gatherer))
	mux.Handle("GET /links", linksHandler(s.Links))
	mux.Handle("GET /trace", traceHandler(s.worker.Record))
	mux.Handle("GET /healthz", probe("alive", s.alive))
	mux.Handle("GET /readyz", probe("ready", s.ready))
	return mux
}

func metricsHandler(g prometheus.Gatherer) http.Handler {
	scrape := promhttp.HandlerFor(g, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(scrapeTimeout)) // only the writers of tests have no deadline
		scrape.ServeHTTP(w, r)
	})
	return mux
}

// pprofHandler serves profiles to a few clients at a time. refused counts the others.
func pprofHandler(refused func()) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	places := make(chan struct{}, maxProfiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > maxProfileTime.Seconds() { // net/http/pprof refuses other errors
				http.Error(w, "seconds="+strconv.Quote(text)+": at most "+strconv.Itoa(int(maxProfileTime.Seconds())), http.StatusBadRequest)
				return
			}
		}
		select {
		case places <- struct{}{}:
			defer func() { <-places }()
			mux.ServeHTTP(w, r)
		default:
			refused()
			http.Error(w, "there are "+strconv.Itoa(maxProfiles)+" requests for profiles in progress already; try again later", http.StatusServiceUnavailable)
		}
	})
}

// endpoint is an HTTP listener of a server.
type endpoint struct {
	setting, address string // the setting that gave the address
	handler          http.Handler
}

// start serves an endpoint. Errors and log lines name its setting.
func (e endpoint) start(ctx context.Context, all *listen.Listeners) (*httpServer, error) {
	lis, err := listen.TCP(ctx, e.setting, e.address)
	if err != nil {
		return nil, err
	}
	s := &httpServer{
		addr: lis.Addr(),
		server: &http.Server{
			Handler: e.withoutBody(all), MaxHeaderBytes: maxHTTPHeader, ErrorLog: slog.NewLogLogger(all.Log.Handler(), slog.LevelDebug),
			ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: scrapeTimeout, IdleTimeout: requestTimeout,
		},
		done: make(chan struct{}),
	}
	go func() {
		defer close(s.done)
		if err := s.server.Serve(all.Bounded(lis, e.setting)); !errors.Is(err, http.ErrServerClosed) {
			all.Log.Error("the HTTP listener has ended, and what it served is not served any more; restart this process", "setting", e.setting, "address", lis.Addr().String(), "reason", err)
		}
	}()
	all.Log.Info("serving HTTP", "setting", e.setting, "address", lis.Addr().String())
	return s, nil
}

// withoutBody refuses requests with a body, which no endpoint needs, so that nobody waits for the rest of
// one.
func (e endpoint) withoutBody(all *listen.Listeners) http.Handler {
	var seldom lograte.Limiter
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			all.Refused.WithLabelValues(e.setting, listen.RefusedByBody).Inc()
			if not, ok := seldom.Now(); ok {
				all.Log.Warn("refusing an HTTP request with a body", "setting", e.setting, "address", r.RemoteAddr, "method", r.Method, "bytes", r.ContentLength, "not_logged", not)
			}
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // net/http would wait for the rest of the body
			http.Error(w, e.setting+" takes no requests with a body; send GET without one", http.StatusRequestEntityTooLarge)
			return
		}
		e.handler.ServeHTTP(w, r)
	})
}

func (s *httpServer) close() {
	_ = s.server.Close() // the error of the listener does not matter any more
	<-s.done
}
