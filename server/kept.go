package server

import (
	runtimemetrics "runtime/metrics"

	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/tensor"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
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

// addKept adds the registered memory.
func (r *rdma) addKept(k *metrics.Kept) {
	add := func(what, why string, read func(verbstransport.MemoryStats) int64) {
		k.Add(what, why, func() int64 { return read(r.transport.Memory()) })
	}
	for _, p := range []struct {
		name string
		of   func(verbstransport.MemoryStats) verbstransport.PoolStats
	}{
		{"sending", func(s verbstransport.MemoryStats) verbstransport.PoolStats { return s.Sending }},
		{"receiving", func(s verbstransport.MemoryStats) verbstransport.PoolStats { return s.Receiving }},
	} {
		add("registered for "+p.name, "free, of the first region, which stays registered (arena)", func(s verbstransport.MemoryStats) int64 {
			t := p.of(s)
			return min(t.Start, present(t))
		})
		add("registered for "+p.name, "kept for the next tensors; freed with the whole region when that is unused for release-after", func(s verbstransport.MemoryStats) int64 {
			t := p.of(s)
			return max(0, present(t)-t.Start)
		})
		add("registered for "+p.name, "the device did not deregister it", func(s verbstransport.MemoryStats) int64 { return p.of(s).Stuck })
	}
	add("quarantine", "of failed receives, which peers may still write to", func(s verbstransport.MemoryStats) int64 { return s.Quarantined })
	add("messages", "for the control messages of channels; goes with the channel", func(s verbstransport.MemoryStats) int64 { return s.Slots })
}

// present is how many bytes of arenas are free and take memory of the system.
func present(s verbstransport.PoolStats) int64 { return s.Mapped - s.InUse - s.Absent }
