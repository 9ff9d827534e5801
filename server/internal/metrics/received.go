package metrics

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/transport"
)

// Received counts received tensors. It caches the metrics of each route, because a
// lookup by labels hashes them and takes a lock, for each metric of each tensor.
type Received struct {
	tensors, bytes, retries *prometheus.CounterVec
	seconds                 *prometheus.HistogramVec

	mu     sync.RWMutex // guards routes
	routes map[route]*routeMetrics
}

// route identifies the peer that tensors came from and the transport that carried them.
type route struct {
	transport string
	peer      cluster.Task // zero for tasks that only the cluster of a session has
}

// routeMetrics has the metrics of one route.
type routeMetrics struct {
	count, size             atomic.Int64 // tensors and their bytes; the value of a Counter cannot be read
	tensors, bytes, retries prometheus.Counter
	seconds                 prometheus.Observer
}

// Buckets of transfer times: from 10 µs (a small tensor over RDMA) by factors of 4
// to 40 s (a large tensor over a slow network).
const (
	firstBucket  = 10 * time.Microsecond
	bucketFactor = 4
	timeBuckets  = 12
	// Pulls take from 10 ms (a small tensor) by the same factor to 11 hours.
	firstPullBucket = 10 * time.Millisecond
	pullBuckets     = 12
)

func newReceived() *Received {
	labels := []string{"transport", "peer"}
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Received{
		tensors: counter("tryst_received_tensors_total", "Tensors received, by transport and sending task."),
		bytes:   counter("tryst_received_bytes_total", "Content of received tensors, in bytes."),
		retries: counter("tryst_receive_retries_total",
			"Retries of receives that succeeded, by the transport of the last attempt and sending task."),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "tryst_receive_seconds", Help: "Duration of transfers in seconds, by transport and sending task.",
			Buckets: prometheus.ExponentialBuckets(firstBucket.Seconds(), bucketFactor, timeBuckets),
		}, labels),
		routes: make(map[route]*routeMetrics),
	}
}

func (m *Received) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.tensors, m.bytes, m.retries, m.seconds}
}

// Observe counts a completed receive. The transfer log calls it. A tensor that comes in pieces
// counts once, with the first.
func (m *Received) Observe(t transport.Transfer) {
	a := m.of(route{t.Transport, t.Peer})
	if !checkpoint.ContinuesTensor(t.Tensor) {
		a.count.Add(1)
		a.tensors.Inc()
	}
	a.size.Add(t.Bytes)
	a.bytes.Add(float64(t.Bytes))
	a.seconds.Observe(t.End.Sub(t.Start).Seconds())
	if t.Attempt > 1 {
		a.retries.Add(float64(t.Attempt - 1))
	}
}

// of returns the metrics of a route.
func (m *Received) of(r route) *routeMetrics {
	m.mu.RLock()
	a := m.routes[r]
	m.mu.RUnlock()
	if a != nil {
		return a
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if a = m.routes[r]; a == nil {
		peer := OtherPeers
		if r.peer != (cluster.Task{}) {
			peer = r.peer.String()
		}
		a = &routeMetrics{
			tensors: m.tensors.WithLabelValues(r.transport, peer),
			bytes:   m.bytes.WithLabelValues(r.transport, peer),
			retries: m.retries.WithLabelValues(r.transport, peer),
			seconds: m.seconds.WithLabelValues(r.transport, peer),
		}
		m.routes[r] = a
	}
	return a
}

// ByTransport returns the number of received tensors for each transport.
func (m *Received) ByTransport() map[string]int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	counts := make(map[string]int)
	for r, a := range m.routes {
		counts[r.transport] += int(a.count.Load())
	}
	return counts
}

// Each calls f with what came over each transport from each peer; a zero peer stands for all that only the cluster of a session has.
func (m *Received) Each(f func(transport string, peer cluster.Task, tensors, bytes int64)) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for r, a := range m.routes {
		f(r.transport, r.peer, a.count.Load(), a.size.Load())
	}
}
