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
func (s *Server) operatorHandler(refuse refuser) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(s.gatherer, refuse))
	mux.Handle("GET /links", linksHandler(s.Links, refuse))
	mux.Handle("GET /trace", traceHandler(s.worker.Record, refuse))
	mux.Handle("GET /healthz", probe("alive", s.alive))
	mux.Handle("GET /readyz", probe("ready", s.ready))
	return mux
}

func metricsHandler(g prometheus.Gatherer, refuse refuser) http.Handler {
	scrape := promhttp.HandlerFor(g, promhttp.HandlerOpts{})
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", atOnce(maxScrapes, "scrapes under way", refuse, func(w http.ResponseWriter, r *http.Request) {
		setWriteDeadline(w)
		scrape.ServeHTTP(w, r)
	}))
	return mux
}

// pprofHandler serves profiles to a few clients at a time.
func pprofHandler(refuse refuser) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	serve := atOnce(maxProfiles, "requests for profiles in progress", refuse, mux.ServeHTTP)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if text := r.URL.Query().Get("seconds"); text != "" {
			if seconds, err := strconv.ParseFloat(text, 64); err == nil && seconds > maxProfileTime.Seconds() { // net/http/pprof refuses other errors
				refuse(w, r, listen.RefusedByTime, http.StatusBadRequest, "seconds="+strconv.Quote(text)+": at most "+strconv.Itoa(int(maxProfileTime.Seconds())))
				return
			}
		}
		serve(w, r)
	})
}

// endpoint is an HTTP listener of a server.
type endpoint struct {
	setting, address string // the setting that gave the address
	refuse           refuser
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
			Handler: e.withoutBody(), MaxHeaderBytes: maxHTTPHeader, ErrorLog: slog.NewLogLogger(all.Log.Handler(), slog.LevelDebug),
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
func (e endpoint) withoutBody() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // net/http would wait for the rest of the body
			e.refuse(w, r, listen.RefusedByBody, http.StatusRequestEntityTooLarge, e.setting+" takes no requests with a body; send GET without one")
			return
		}
		e.handler.ServeHTTP(w, r)
	})
}

func (s *httpServer) close() {
	_ = s.server.Close() // the error of the listener does not matter any more
	<-s.done
}
