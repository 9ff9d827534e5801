package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Returned is the metric of the time until the memory of a version is its owner's again.
type Returned struct{ prometheus.Histogram }

// NewReturned makes the metric.
func NewReturned() Returned {
	return Returned{prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "tryst_version_memory_return_seconds",
		Help:    "Time from the end of a version of tensors in memory, by its replacement or withdrawal, until no puller and no device referred to its memory, in seconds.",
		Buckets: []float64{.001, .01, .1, 1, 2, 5, 10, 15, 30, 60},
	})}
}

// Observe takes note of one version.
func (r Returned) Observe(d time.Duration) { r.Histogram.Observe(d.Seconds()) }
