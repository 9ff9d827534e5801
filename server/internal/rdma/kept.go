package rdma

import (
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	verbstransport "github.com/tryst-rdma/tryst/transport/verbs"
)

// addKept adds the registered memory.
func (r *Part) addKept(k *metrics.Kept) {
	add := func(what, why string, read func(verbstransport.MemoryStats) int64) {
		k.Add(what, why, func() int64 { return read(r.Transport.Memory()) })
	}
	for _, p := range []struct {
		name string
		of   func(verbstransport.MemoryStats) verbstransport.PoolStats
	}{
		{"sending", func(s verbstransport.MemoryStats) verbstransport.PoolStats { return s.Sending }},
		{"receiving", func(s verbstransport.MemoryStats) verbstransport.PoolStats { return s.Receiving }},
	} {
		add("registered_"+p.name, "first_region", func(s verbstransport.MemoryStats) int64 {
			t := p.of(s)
			return min(t.Start, present(t))
		})
		add("registered_"+p.name, metrics.ForNext, func(s verbstransport.MemoryStats) int64 {
			t := p.of(s)
			return max(0, present(t)-t.Start)
		})
		add("registered_"+p.name, "stuck", func(s verbstransport.MemoryStats) int64 { return p.of(s).Stuck })
	}
	add("quarantine", "failed_receives", func(s verbstransport.MemoryStats) int64 { return s.Quarantined })
	add("messages", "channels", func(s verbstransport.MemoryStats) int64 { return s.Slots })
}

// present is how many bytes of arenas are free and take memory of the system.
func present(s verbstransport.PoolStats) int64 { return s.Mapped - s.InUse - s.Absent }
