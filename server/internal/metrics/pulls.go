package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
	"github.com/tryst-rdma/tryst/status"
)

// Pulls has the metrics of the pulls that a process serves.
type Pulls struct {
	ended   *prometheus.CounterVec
	seconds prometheus.Histogram
}

// AddPulls adds the metrics of pulls. The bytes are read from the Catalog, which bounds the names of publications.
func (s *Set) AddPulls(catalog func() *checkpoint.Catalog) *Pulls {
	p := &Pulls{
		ended: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tryst_pulls_total",
			Help: "Pulls that have ended, without measurements, by code: OK for complete ones, Cancelled for those that the puller ended before, NotFound for what was withdrawn or never there.",
		}, []string{"code"}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tryst_pull_seconds", Help: "Duration of complete pulls in seconds.",
			Buckets: prometheus.ExponentialBuckets(firstPullBucket.Seconds(), bucketFactor, pullBuckets),
		}),
	}
	p.ended.WithLabelValues(status.OK.String()) // so that the first failure is an increase of a sum that was there
	s.Add(p.ended, p.seconds, pulledBytes{catalog, prometheus.NewDesc("tryst_pulled_bytes_total",
		"Content handed to the transports for pulls, in bytes, by publication; what is requested again counts again. Beyond 200 names those that were withdrawn share the label other.",
		[]string{"publication"}, nil)}, newDeltaBytes(catalog))
	return p
}

// Ended counts a pull.
func (p *Pulls) Ended(e checkpoint.PullEnd) {
	p.ended.WithLabelValues(e.Code.String()).Inc()
	if e.Complete() {
		p.seconds.Observe(e.Took.Seconds())
	}
}

// pulledBytes is the metric of each publication.
type pulledBytes struct {
	catalog func() *checkpoint.Catalog
	desc    *prometheus.Desc
}

// Describe implements prometheus.Collector.
func (p pulledBytes) Describe(c chan<- *prometheus.Desc) { c <- p.desc }

// Collect implements prometheus.Collector.
func (p pulledBytes) Collect(c chan<- prometheus.Metric) {
	sums := make(map[string]int64) // a name may be that of the others, or equal another one in UTF-8
	others := p.catalog().PulledBytes(func(name string, bytes int64) { sums[strings.ToValidUTF8(name, "\uFFFD")] += bytes })
	if others > 0 {
		sums[OtherPeers] += others
	}
	for name, n := range sums {
		c <- prometheus.MustNewConstMetric(p.desc, prometheus.CounterValue, float64(n), name)
	}
}
