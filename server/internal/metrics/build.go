package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/internal/statusapi"
)

// AddBuild adds the metric whose labels describe the program of the process.
func (s *Set) AddBuild(b statusapi.Build) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tryst_build_info", Help: "1, with the version of the program, its commit, whether files differed from that, and the version of Go.",
		ConstLabels: prometheus.Labels{"version": Label(b.Version), "commit": b.Commit, "modified": strconv.FormatBool(b.Modified), "goversion": b.Go},
	})
	info.Set(1)
	s.Add(info)
}
