package metrics

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
)

// deltaBytes are the metrics of the deltas between versions, which are read from the Catalog.
type deltaBytes struct {
	catalog     func() *checkpoint.Catalog
	sent, stood *prometheus.Desc
}

func newDeltaBytes(catalog func() *checkpoint.Catalog) deltaBytes {
	return deltaBytes{
		catalog,
		prometheus.NewDesc("tryst_delta_bytes_total",
			"Deltas between versions that were handed to the transports for watchers, in bytes, by method: nothing (only the digests), sparse, xor. They count in tryst_pulled_bytes_total, too.",
			[]string{"method"}, nil),
		prometheus.NewDesc("tryst_delta_stood_bytes_total",
			"Content of the tensors for which these deltas stood, in bytes, by method.", []string{"method"}, nil),
	}
}

// Describe implements prometheus.Collector.
func (d deltaBytes) Describe(c chan<- *prometheus.Desc) { c <- d.sent; c <- d.stood }

// Collect implements prometheus.Collector.
func (d deltaBytes) Collect(c chan<- prometheus.Metric) {
	d.catalog().Saved(func(method string, sent, stood int64) {
		c <- prometheus.MustNewConstMetric(d.sent, prometheus.CounterValue, float64(sent), method)
		c <- prometheus.MustNewConstMetric(d.stood, prometheus.CounterValue, float64(stood), method)
	})
}
