package listen

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/identity"
	"github.com/tryst-rdma/tryst/server/internal/lograte"
)

// Listeners has what the listeners of a server have in common: their metrics and their log.
type Listeners struct {
	Log *slog.Logger
	// Refused counts what HTTP listeners refuse, by setting and reason, and Turned the gRPC connections
	// that were turned away.
	Refused *prometheus.CounterVec
	Turned  prometheus.Counter

	failed *prometheus.CounterVec // by setting
}

// NewListeners makes what the listeners that log to log have in common.
func NewListeners(log *slog.Logger) *Listeners {
	return &Listeners{
		Log: log,
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_accept_errors_total", Help: "Attempts to accept a connection that failed, by the setting that has the address of the listener.",
		}, []string{"setting"}),
		Refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_http_refused_total", Help: "Connections and requests that the HTTP listeners refused, by the setting that has the address, and why.",
		}, []string{"setting", "reason"}),
		Turned: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tryst_refused_connections_total", Help: "gRPC connections that were refused, since there were too many from their address or in all.",
		}),
	}
}

// Collectors returns the metrics of the listeners.
func (l *Listeners) Collectors() []prometheus.Collector {
	return []prometheus.Collector{l.failed, l.Refused, l.Turned}
}

// The reasons for which the HTTP listeners refuse.
const (
	RefusedByAddress = "address_connections"
	refusedByTotal   = "connections"
	RefusedByBody    = "body"
	RefusedByCalls   = "requests"
	RefusedByTime    = "time"
)

// Steady returns a listener that goes on after errors.
func (l *Listeners) Steady(lis net.Listener, setting string) net.Listener {
	return l.steady(lis, setting)
}

func (l *Listeners) steady(lis net.Listener, setting string) *steadyListener {
	return &steadyListener{
		Listener: lis, setting: setting, log: l.Log, failed: l.failed.WithLabelValues(setting), closed: make(chan struct{}),
	}
}

// steadyListener is a listener whose Accept returns no error that may pass, such as that of a process
// without free descriptors: servers end with errors that they do not know. It tries again after a pause.
type steadyListener struct {
	net.Listener
	setting string
	log     *slog.Logger
	failed  prometheus.Counter
	rarely  lograte.Limiter
	once    sync.Once
	closed  chan struct{}
}

// Accept implements net.Listener.
func (l *steadyListener) Accept() (net.Conn, error) {
	for pause := acceptPauseMin; ; pause = min(2*pause, acceptPauseMax) {
		conn, err := l.Listener.Accept()
		if err == nil || lasts(err) {
			return conn, err
		}
		l.failed.Inc()
		if not, ok := l.rarely.Now(); ok {
			l.log.Warn("cannot accept connections; trying again. Raise the limit of descriptors (ulimit -n, LimitNOFILE) if the reason is that there are too many open files",
				"setting", l.setting, "address", l.Addr().String(), "reason", err, "not_logged", not)
		}
		timer := time.NewTimer(pause)
		select {
		case <-l.closed:
			timer.Stop()
			return nil, net.ErrClosed
		case <-timer.C:
		}
	}
}

// Close implements net.Listener.
func (l *steadyListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// lasts reports whether a listener that fails with err fails for ever.
func lasts(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, syscall.EBADF) || errors.Is(err, syscall.EINVAL) ||
		errors.Is(err, syscall.ENOTSOCK) || errors.Is(err, syscall.EOPNOTSUPP)
}

// boundedListener is a listener that bounds its open connections, in all and of each address. What
// comes beyond is closed at once, so that it holds no descriptor, and that addresses within
// their share are served.
type boundedListener struct {
	*steadyListener
	refused *prometheus.CounterVec

	mu    sync.Mutex // guards what follows
	open  int
	hosts map[string]int // by identity.AddressOf
}

// Bounded returns a listener for HTTP that goes on after errors and bounds its connections.
func (l *Listeners) Bounded(lis net.Listener, setting string) net.Listener {
	return l.bounded(lis, setting)
}

func (l *Listeners) bounded(lis net.Listener, setting string) *boundedListener {
	return &boundedListener{steadyListener: l.steady(lis, setting), refused: l.Refused, hosts: make(map[string]int)}
}

// Accept implements net.Listener.
func (l *boundedListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.steadyListener.Accept()
		if err != nil {
			return nil, err
		}
		host := identity.AddressOf(conn.RemoteAddr())
		reason, limit := l.enter(host)
		if reason == "" {
			return &boundedConn{Conn: conn, leave: sync.OnceFunc(func() { l.leave(host) })}, nil
		}
		_ = conn.Close() // nothing was sent
		l.refused.WithLabelValues(l.setting, reason).Inc()
		if not, ok := l.rarely.Now(); ok {
			l.log.Warn("refusing an HTTP connection: there are too many; end some, or let fewer hosts reach the address",
				"setting", l.setting, "address", conn.RemoteAddr().String(), "reason", reason, "limit", limit, "not_logged", not)
		}
	}
}

// enter counts a connection. It returns the reason and the limit when there is no place for it.
func (l *boundedListener) enter(host string) (reason string, limit int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.open >= maxHTTPConns || l.open >= maxHTTPConns-newcomerHTTPConns && l.hosts[host] > 0:
		return refusedByTotal, maxHTTPConns
	case l.hosts[host] >= maxHTTPConnsPerAddress:
		return RefusedByAddress, maxHTTPConnsPerAddress
	}
	l.open++
	l.hosts[host]++
	return "", 0
}

func (l *boundedListener) leave(host string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	if l.hosts[host]--; l.hosts[host] == 0 {
		delete(l.hosts, host)
	}
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	leave func()
}

// Close implements net.Conn.
func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.leave()
	return err
}
