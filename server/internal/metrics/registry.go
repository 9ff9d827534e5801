package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Registries returns where a process registers its metrics, and what its metrics address serves.
// Without a Registerer that can be gathered from, the address serves a registry of the process.
func Registries(given prometheus.Registerer) (prometheus.Registerer, prometheus.Gatherer) {
	if g, ok := given.(prometheus.Gatherer); ok {
		return given, g
	}
	own := prometheus.NewRegistry()
	own.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if given == nil {
		return own, own
	}
	return registerers{given, own}, own
}

// registerers is several Registerers as one.
type registerers []prometheus.Registerer

// Register registers c with all, or with none if one refuses it.
func (rs registerers) Register(c prometheus.Collector) error {
	for i, r := range rs {
		if err := r.Register(c); err != nil {
			for _, added := range rs[:i] {
				added.Unregister(c)
			}
			return err
		}
	}
	return nil
}

// MustRegister implements prometheus.Registerer.
func (rs registerers) MustRegister(all ...prometheus.Collector) {
	for _, r := range rs {
		r.MustRegister(all...)
	}
}

// Unregister reports whether one of them had c.
func (rs registerers) Unregister(c prometheus.Collector) bool {
	had := false
	for _, r := range rs {
		had = r.Unregister(c) || had
	}
	return had
}
