// Package loss notices lost packets and warns when they matter:
//
//	receives begin ─► Watch (timer, while there is traffic) ─► Reading
//	Reading, and the one before ─► judge (pure) ─► finding ─► one WARN
package loss

import (
	"fmt"
	"log/slog"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/devices"
	"github.com/tryst-rdma/tryst/internal/discovery"
	"github.com/tryst-rdma/tryst/internal/providers"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
	"github.com/tryst-rdma/tryst/verbs"
)

// Watch warns of lost packets. Its timer runs only while there is traffic.
type Watch struct {
	// TCP has the connections of the process.
	TCP Conns

	log     *slog.Logger
	timer   *time.Timer // runs tick
	device  atomic.Pointer[Device]
	recent  atomic.Bool // a receive has begun or ended since the last reading
	running atomic.Bool // the timer is set, or tick runs

	// mu guards what follows. It is held during a reading, which takes locks of the transport,
	// so Touch, whose callers hold those, does not take it.
	mu      sync.Mutex
	judge   judge
	moved   uint64 // packets of the last reading
	stopped bool
	warned  map[string]int // warnings by kind
}

// Device has the functions that read the device in use.
type Device struct {
	// Current returns the device, and Counters the counters of its port.
	Current  func() (devices.Selection, bool)
	Counters func() (discovery.Choice, map[string]uint64)
	// Connections returns the channels to peers.
	Connections func() []verbstransport.Connection
}

// NewWatch makes a watch that logs to log. Stop ends it.
func NewWatch(log *slog.Logger) *Watch {
	w := &Watch{log: log, warned: make(map[string]int)}
	w.timer = time.AfterFunc(math.MaxInt64, w.tick)
	w.timer.Stop()
	return w
}

// WatchDevice adds the device of verbs.
func (w *Watch) WatchDevice(d Device) { w.device.Store(&d) }

// Touch is called when a receive begins or ends. While the timer runs it costs an atomic load.
func (w *Watch) Touch() {
	if w.recent.Load() || w.recent.Swap(true) {
		return
	}
	w.begin()
}

// begin starts the timer, unless it runs.
func (w *Watch) begin() {
	if w.running.CompareAndSwap(false, true) {
		w.timer.Reset(0)
	}
}

// Active reports whether the counters are read: there was traffic lately.
func (w *Watch) Active() bool { return w.running.Load() }

// tick reads the counters. The first tick after a time without traffic only begins.
func (w *Watch) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	recent := w.recent.Swap(false)
	r := w.readLocked(time.Now())
	moved := w.packets(r)
	active := recent || moved != w.moved
	if w.judge.since.at.IsZero() {
		w.judge.begin(r)
	} else {
		for _, f := range w.judge.observe(r) {
			w.warned[f.kind]++
			w.report(f)
		}
	}
	w.moved = moved
	if active {
		w.timer.Reset(interval)
		return
	}
	w.judge.begin(Reading{})
	w.running.Store(false)
	if w.recent.Load() { // Touch came while running was set
		w.begin()
	}
}

// readLocked reads all counters. Called with mu held.
func (w *Watch) readLocked(now time.Time) Reading {
	r := Reading{at: now, TCP: w.TCP.Read()}
	d := w.device.Load()
	if d == nil {
		return r
	}
	s, ok := d.Current()
	if !ok {
		return r
	}
	r.choice, r.Counters = d.Counters()
	row, _ := providers.Of(s.Name())
	r.throughput = row.Throughput
	_, rxe := r.Counters["completer_retry_err"]
	r.Software = r.throughput != nil || rxe
	if p, ok := s.Device.(verbs.PathReader); ok {
		r.Paths = p.Paths()
	}
	return r
}

// packets returns a number that changes while this process sends or receives. The counters of a
// kernel's device are those of all processes, so its completions are taken instead.
func (w *Watch) packets(r Reading) (n uint64) {
	for _, c := range r.TCP {
		n += c.sent
	}
	if r.Paths != nil {
		for _, p := range r.Paths {
			n += p.Sent + p.Received
		}
		return n
	}
	if d := w.device.Load(); d != nil {
		for _, c := range d.Connections() {
			n += c.Poll.Completions
		}
	}
	return n
}

// report logs a finding. Called with mu held.
func (w *Watch) report(f finding) {
	lost := fmt.Sprintf("%d in %v", f.lost, f.over.Round(time.Second))
	if f.of > 0 {
		lost = fmt.Sprintf("%.2f %% (%d of %d packets in %v)", 100*f.rate(), f.lost, f.of, f.over.Round(time.Second))
	}
	args := []any{"device", f.device, "peer", w.PeerName(f.peer), "lost", lost}
	if f.expect > 0 {
		args = append(args, "expect", ThroughputText(f.expect, f.roundTrip))
	}
	w.log.Warn(f.what, append(args, "do", f.do)...)
}

// ThroughputText says what to expect of a path.
func ThroughputText(rate float64, roundTrip time.Duration) string {
	precision := 10 * time.Microsecond
	if roundTrip > time.Millisecond {
		precision = 100 * time.Microsecond
	}
	return fmt.Sprintf("about %s/s at a round trip of %v", megabytes(rate), roundTrip.Round(precision))
}

func megabytes(n float64) string {
	if n < 10e6 {
		return fmt.Sprintf("%.1f MB", n/1e6)
	}
	return fmt.Sprintf("%.0f MB", n/1e6)
}

// PeerName names the peer at an address. If the device does not count by peer, it is the only
// peer with a channel, or one of them.
func (w *Watch) PeerName(at netip.AddrPort) string {
	var tasks []string
	if d := w.device.Load(); d != nil {
		for _, c := range d.Connections() {
			if !c.Verbs {
				continue
			}
			if at.IsValid() && SamePeer(at, c.Socket) {
				return c.Task.String()
			}
			tasks = append(tasks, c.Task.String())
		}
	}
	switch {
	case at.IsValid():
		return at.String()
	case len(tasks) == 1:
		return tasks[0]
	}
	return fmt.Sprintf("one of %d", len(tasks))
}

// SamePeer compares addresses without their zones, which offers do not have.
func SamePeer(a, b netip.AddrPort) bool {
	return a.Port() == b.Port() && a.Addr().WithZone("") == b.Addr().WithZone("")
}

// Stop ends the watch. A reading in progress ends first.
func (w *Watch) Stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	w.timer.Stop()
}

// Collectors returns the metrics of lost packets.
func (w *Watch) Collectors() (all []prometheus.Collector) {
	names := []string{tcpKind}
	for _, k := range kinds {
		names = append(names, k.kind.String())
	}
	for _, kind := range names {
		labels := prometheus.Labels{"kind": kind}
		all = append(all,
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "tryst_loss_ratio", ConstLabels: labels,
				Help: "Share of packets that were lost, 0 to 1, in the last seconds with traffic, by kind; of the path that loses most where the device counts by peer.",
			}, func() float64 { return locked(w, func() float64 { return w.judge.rates[kind] }) }),
			prometheus.NewCounterFunc(prometheus.CounterOpts{
				Name: "tryst_loss_warnings_total", ConstLabels: labels, Help: "Warnings of lost packets in the log, by kind.",
			}, func() float64 { return locked(w, func() float64 { return float64(w.warned[kind]) }) }))
	}
	return append(all,
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tryst_tcp_sent_segments_total", Help: "Segments that TCP has sent on the connections of gRPC and of queue pairs, where the system counts them.",
		}, func() float64 { sent, _ := w.TCP.Totals(); return float64(sent) }),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "tryst_tcp_resent_segments_total", Help: "Segments of them that TCP has sent again.",
		}, func() float64 { _, resent := w.TCP.Totals(); return float64(resent) }))
}

func locked(w *Watch, read func() float64) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return read()
}

// Read reads all counters now.
func (w *Watch) Read() Reading {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.readLocked(time.Now())
}
