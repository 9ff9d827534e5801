// Package httpserver serves what operators and their systems ask a server for over HTTP: the page, the status, metrics, links,
// traces and probes on one address, and profiles on another. Each is optional. The number of requests under way, their
// length and their time are bounded (limits.go).
package httpserver

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

	"github.com/tryst-rdma/tryst/internal/page"
	"github.com/tryst-rdma/tryst/internal/statusapi"
	tfpb "github.com/tryst-rdma/tryst/proto/tensorflow"
	"github.com/tryst-rdma/tryst/server/internal/listen"
	"github.com/tryst-rdma/tryst/server/internal/overview"
)

// Options are what a Server serves, and where.
type Options struct {
	// MetricsAddress and PprofAddress are the addresses, as HOST:PORT; nothing is served on an empty one.
	MetricsAddress, PprofAddress string

	Listeners *listen.Listeners // bound, count and log the connections and the refusals
	Metrics   prometheus.Gatherer
	// Links returns what /links serves as JSON.
	Links func() any
	// Status returns what /api/status and /api/events serve.
	Status func(context.Context) (overview.Encoded, error)
	// Changed returns a channel that is closed when something happened that a stream is to send at once.
	Changed func() <-chan struct{}
	// Record records what runs until its context ends, for /trace. release gives back the memory of the records.
	Record func(context.Context) (steps []*tfpb.LabeledStepStats, release func())
	// Alive returns why the process must be replaced, and Ready why it must get no new callers; "" if not.
	Alive, Ready func() string
}

// Server serves on up to two addresses. Its owner closes it.
type Server struct {
	listeners []*listener
	closing   chan struct{} // closed by Close, for streams
}

// The settings of the addresses.
const (
	MetricsKey = "metrics-address"
	PprofKey   = "pprof-address"
)

// Start serves. An address in use is Unavailable. ctx bounds the start only.
func Start(ctx context.Context, o Options) (*Server, error) {
	s := &Server{closing: make(chan struct{})}
	metrics, profiles := newRefuser(o.Listeners, MetricsKey), newRefuser(o.Listeners, PprofKey)
	for _, e := range []endpoint{
		{MetricsKey, o.MetricsAddress, metrics, o.handler(s.closing, metrics)},
		{PprofKey, o.PprofAddress, profiles, pprofHandler(profiles)},
	} {
		if e.address == "" {
			continue
		}
		l, err := e.start(ctx, o.Listeners)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.listeners = append(s.listeners, l)
	}
	return s, nil
}

// Addr returns the address that a setting has got; nil if nothing is served there.
func (s *Server) Addr(setting string) net.Addr {
	for _, l := range s.listeners {
		if l.setting == setting {
			return l.addr
		}
	}
	return nil
}

// Close cuts off the requests under way. A nil Server is closed.
func (s *Server) Close() {
	if s == nil {
		return
	}
	close(s.closing)
	for _, l := range s.listeners {
		l.close()
	}
}

// listener serves on one address. It owns the goroutine that accepts connections; close waits for it.
type listener struct {
	setting string
	addr    net.Addr
	server  *http.Server
	done    chan struct{}
}

// handler serves the page, the status, metrics, links, traces, and the probes of Kubernetes and of load balancers.
func (o *Options) handler(closing <-chan struct{}, refuse refuser) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metricsHandler(o.Metrics, refuse))
	mux.Handle("GET /links", linksHandler(o.Links, refuse))
	mux.Handle("GET "+statusapi.Path, statusHandler(o.Status, refuse))
	mux.Handle("GET "+statusapi.EventsPath, eventsHandler(o.Status, o.Changed, closing, refuse))
	mux.Handle("GET /{$}", page.Handler())
	mux.Handle("GET /trace", traceHandler(o.Record, refuse))
	mux.Handle("GET /healthz", probe("alive", o.Alive))
	mux.Handle("GET /readyz", probe("ready", o.Ready))
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

// endpoint is a listener before its start.
type endpoint struct {
	setting, address string // the setting that gave the address
	refuse           refuser
	handler          http.Handler
}

// start serves an endpoint. Errors and log lines name its setting.
func (e endpoint) start(ctx context.Context, all *listen.Listeners) (*listener, error) {
	lis, err := listen.TCP(ctx, e.setting, e.address)
	if err != nil {
		return nil, err
	}
	s := &listener{
		setting: e.setting, addr: lis.Addr(),
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

func (s *listener) close() {
	_ = s.server.Close() // the error of the listener does not matter any more
	<-s.done
}
