package server

import (
	runtimemetrics "runtime/metrics"

	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/tensor"
)

// addPool adds the metrics of the pool.
func (n *node) addPool(p *tensor.Pool) {
	n.metrics.Gauge("tryst_pool_used_bytes", "Memory of the pool that tensors use, in bytes.",
		func() float64 { return float64(p.Stats().InUse) })
	n.metrics.Gauge("tryst_pool_kept_bytes", "Free memory that the pool keeps for later tensors, in bytes.",
		func() float64 { return float64(p.Stats().Kept) })
	n.metrics.Kept.Add("pool", metrics.ForNext, func() int64 { return p.Stats().Kept })
}

// addKept adds what every process keeps.
func (n *node) addKept() {
	n.metrics.Kept.Add("go heap", "free; returned to the system after the last transfer", func() int64 {
		s := []runtimemetrics.Sample{{Name: heapFree}}
		runtimemetrics.Read(s)
		return int64(value(s[0])) //nolint:gosec // below the size of memory
	})
	n.metrics.Kept.Add("frames", metrics.ForNext, n.conns.KeptFrames)
}

// addKept adds what a server keeps.
func (s *Server) addKept() {
	s.metrics.Kept.Add("response cache", "not acknowledged by the requester yet, up to kept.per-peer and kept.total", func() int64 { return s.cache.Stats().Bytes })
	s.metrics.Kept.Add("file cache", "kept for the next pull, up to file-cache; freed when unused for twice release-after", s.catalog.Cached)
}
