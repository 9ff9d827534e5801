package server

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tryst-rdma/tryst/status"
)

// headerTimeout bounds how long a client may take to send the request line and headers,
// and how long a connection may be idle, so that idle connections do not accumulate.
const headerTimeout = 10 * time.Second

// maxScrapes bounds how many scrapes are served at once, and scrapeTimeout how long one may take,
// so that clients that do not read are bounded. Both are above what monitoring systems need.
const (
	maxScrapes    = 8
	scrapeTimeout = 30 * time.Second
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

func pprofHandler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return mux
}

// startHTTP serves h at address. Errors and log lines name setting, which gave the address.
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
			log.Error("the HTTP listener has ended, and what it served is not served any more; restart this process", "setting", setting, "address", lis.Addr().String(), "reason", err)
		}
	}()
	log.Info("serving HTTP", "setting", setting, "address", lis.Addr().String())
	return s, nil
}

func (s *httpServer) close() {
	_ = s.server.Close() // the error of the listener does not matter any more
	<-s.done
}

// listen opens a TCP listener. Its error names the setting that gave the address.
func listen(ctx context.Context, setting, address string) (net.Listener, error) {
	var lc net.ListenConfig
	lis, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, status.Errorf(status.Unavailable, "%s: cannot listen on %s: %w", setting, address, err)
	}
	return withZone(lis, address), nil
}

// withZone returns a listener whose address has the zone of the address that it listens on. The
// kernel does not tell the zone of an MPTCP socket, which listeners of Go are.
func withZone(lis net.Listener, address string) net.Listener {
	at, ok := lis.Addr().(*net.TCPAddr)
	host, _, err := net.SplitHostPort(address)
	if !ok || err != nil || at.Zone != "" || !at.IP.IsLinkLocalUnicast() {
		return lis
	}
	a, err := netip.ParseAddr(host)
	if err != nil || a.Zone() == "" {
		return lis
	}
	return zoneListener{lis, &net.TCPAddr{IP: at.IP, Port: at.Port, Zone: a.Zone()}}
}

// zoneListener is a listener with another address.
type zoneListener struct {
	net.Listener
	address net.Addr
}

// Addr implements net.Listener.
func (l zoneListener) Addr() net.Addr { return l.address }
