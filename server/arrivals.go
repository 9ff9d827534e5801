package server

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/cluster"
	"github.com/tryst-rdma/tryst/transport"
)

// arrivals counts received tensors, and is the collector of what it counts. Numbers of
// its own become metrics when somebody collects them: Prometheus' counters and histogram
// run some 40 basic blocks more for each small receive.
type arrivals struct {
	last atomic.Pointer[arrival] // of the last tensor: the next is from there, too, as a rule

	mu   sync.Mutex // guards what follows
	from map[route]*arrival

	tensors, bytes, retries, seconds *prometheus.Desc
}

// route is where received tensors come from, and by what.
type route struct {
	transport string
	peer      cluster.Task
}

// arrival is what came by a route.
type arrival struct {
	route
	bytes, retries, nanos atomic.Int64
	times                 [timeBuckets + 1]atomic.Int64 // tensors by how long they took; the last: longer than all buckets
}

// Buckets of transfer times: from a small tensor on a fast wire, 10 µs, in
// steps of 4 to a large one on a slow wire, 40 s.
const (
	firstBucket  = 10 * time.Microsecond
	bucketFactor = 4
	timeBuckets  = 12
)

func newArrivals() *arrivals {
	labels := []string{"transport", "peer"}
	return &arrivals{
		from: make(map[route]*arrival),
		tensors: prometheus.NewDesc("tryst_received_tensors_total",
			"Tensors received, by transport and by the task that sent them.", labels, nil),
		bytes: prometheus.NewDesc("tryst_received_bytes_total",
			"Content of the tensors received, in bytes.", labels, nil),
		retries: prometheus.NewDesc("tryst_receive_retries_total",
			"Attempts beyond the first that received tensors took, by the transport of the last one and by the task that sent them.", labels, nil),
		seconds: prometheus.NewDesc("tryst_receive_seconds",
			"Time from the start of a transfer to its end, by transport and by the task that sent it.", labels, nil),
	}
}

// observe takes a finished receive; it is the observer of the transfer log.
func (m *arrivals) observe(t transport.Transfer) {
	a := m.of(route{t.Transport, t.Source.Task})
	took := t.End.Sub(t.Start)
	a.times[bucketOf(took)].Add(1)
	a.nanos.Add(int64(took))
	a.bytes.Add(t.Bytes)
	if t.Attempt > 1 {
		a.retries.Add(int64(t.Attempt - 1))
	}
}

// bucketOf is the first bucket that has room for d.
func bucketOf(d time.Duration) int {
	steps := bits.Len64(uint64(max(d-1, 0) / firstBucket)) //nolint:gosec // not negative
	return min((steps+1)/2, timeBuckets)                   // two steps of 2 are one of bucketFactor
}

// of finds or makes the counts of a route.
func (m *arrivals) of(r route) *arrival {
	if a := m.last.Load(); a != nil && a.route == r {
		return a
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.from[r]
	if a == nil {
		a = &arrival{route: r}
		m.from[r] = a
	}
	m.last.Store(a)
	return a
}

// byTransport counts the tensors received by the transport that brought them.
func (m *arrivals) byTransport() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := make(map[string]int)
	for r, a := range m.from {
		for i := range a.times {
			counts[r.transport] += int(a.times[i].Load())
		}
	}
	return counts
}

// Describe implements prometheus.Collector.
func (m *arrivals) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.tensors, m.bytes, m.retries, m.seconds} {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (m *arrivals) Collect(to chan<- prometheus.Metric) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for r, a := range m.from {
		labels := []string{r.transport, r.peer.String()}
		var count uint64
		within := make(map[float64]uint64, timeBuckets) // each bucket counts what fits into those before it, too
		for i, bound := 0, firstBucket; i < len(a.times); i, bound = i+1, bound*bucketFactor {
			count += uint64(a.times[i].Load()) //nolint:gosec // not negative
			if i < timeBuckets {
				within[bound.Seconds()] = count
			}
		}
		counter := func(d *prometheus.Desc, n float64) {
			to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, n, labels...)
		}
		counter(m.tensors, float64(count))
		counter(m.bytes, float64(a.bytes.Load()))
		counter(m.retries, float64(a.retries.Load()))
		to <- prometheus.MustNewConstHistogram(m.seconds, count, time.Duration(a.nanos.Load()).Seconds(), within, labels...)
	}
}
