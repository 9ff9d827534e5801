package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Kept is the metric of the memory that a process keeps although no tensor of the program uses
// it, with the reason.
type Kept struct {
	desc *prometheus.Desc
	rows []keptRow
}

type keptRow struct {
	what, why string
	read      func() int64
}

func newKept() *Kept {
	return &Kept{desc: prometheus.NewDesc("tryst_kept_bytes",
		"Memory that is kept although no tensor of the program uses it, in bytes, and why (the words are below the table). Responses and files may share memory.",
		[]string{"what", "why"}, nil)}
}

// Add adds what is kept, why, and the function that returns how many bytes.
func (k *Kept) Add(what, why string, read func() int64) {
	k.rows = append(k.rows, keptRow{what, why, read})
}

// Describe implements prometheus.Collector.
func (k *Kept) Describe(c chan<- *prometheus.Desc) { c <- k.desc }

// Collect implements prometheus.Collector.
func (k *Kept) Collect(c chan<- prometheus.Metric) {
	for _, r := range k.rows {
		c <- prometheus.MustNewConstMetric(k.desc, prometheus.GaugeValue, float64(r.read()), r.what, r.why)
	}
}

// ForNext is the reason for memory that is freed when nothing has used it for release-after.
const ForNext = "next_tensors"
