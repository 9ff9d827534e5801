// Package memory has the memory that a process may use: the part that its tensors, registered memory and graphs
// share, and the Go heap beside it.
package memory

import (
	"log/slog"
	"math"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/server/internal/lograte"
	"github.com/tryst-rdma/tryst/server/internal/metrics"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// Budget is the memory that the parts of a process share. This is the one place where the limits of different
// packages meet:
//
//	Limits.Divide    ─► parts of their own     ─► requests, connections, copies, waiting receives: their packages refuse
//	                  └► Common: one tensor.Pool ─► tensors allocate there; registered memory, the messages of
//	                                              channels and the graphs of sessions reserve there, before they are made
//
// What is in Common and off the Go heap leaves less for the heap, so the collector works harder then (heapLimit).
type Budget struct {
	Options
	Pool    *tensor.Pool // of Common
	Answers *Answers     // in Common

	heap    *heapLimit
	refused prometheus.Counter
}

// Options are the arguments of New.
type Options struct {
	// Memory is how many bytes the process may use; 0 when it is not known. Common is the part that is shared, and
	// ConnectionBytes that for the buffers of accepted gRPC connections.
	Memory, Common, ConnectionBytes int64
	// Parts are all parts in words, for the log. Excess is what to do when they are more than Memory; "" if not.
	Parts, Excess string

	ReleaseAfter time.Duration // when unused memory of the pool is freed
	// LimitHeap lets the soft limit of the Go runtime follow the memory off the heap, unless the user has set one.
	LimitHeap bool
	Logger    *slog.Logger
}

// New makes the budget of a process.
func New(o Options) *Budget {
	all := &Budget{Options: o, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tryst_memory_refused_total", Help: "Tensors, graphs and registered memory that were refused, since the memory that they share is in use.",
	})}
	if o.LimitHeap && o.Memory != 0 {
		all.heap = newHeapLimit(o.Memory)
	}
	var seldom lograte.Limiter
	refused := func(err error) {
		all.refused.Inc()
		if not, ok := seldom.Now(); ok {
			o.Logger.Warn("memory is refused", "reason", err, "not_logged", not)
		}
	}
	all.Pool = tensor.NewPool(tensor.PoolOptions{
		Limit: o.Common, Idle: o.ReleaseAfter, Advice: "give the process more memory (setting memory)", OffHeap: all.heap.add, Refused: refused,
	})
	all.Answers = &Answers{Pool: all.Pool, most: o.Common / answersPart, refused: refused}
	if o.Memory == 0 {
		o.Logger.Warn("the memory that this process may use is not known, so no limit follows from it; set memory")
		return all
	}
	o.Logger.Info("dividing memory", "common", o.Common, "parts", o.Parts)
	if o.Excess != "" {
		o.Logger.Warn("the limits together allow more than the memory of this process; "+o.Excess+", or the system may end it", "sum", o.Parts)
	}
	return all
}

// Reserve counts memory off the Go heap. It is regmem's.
func (b *Budget) Reserve(n int64) (release func(), err error) {
	held, err := b.Pool.Reserve(n)
	if err != nil {
		return nil, err
	}
	b.heap.add(n)
	return func() {
		b.heap.add(-n)
		held.Release()
	}, nil
}

// Connections is how many gRPC connections are accepted in all: those whose buffers fit, and that leave half of the
// descriptors to everything else.
func (b *Budget) Connections() int {
	most := int64(math.MaxInt32)
	if b.ConnectionBytes != 0 {
		most = b.ConnectionBytes / grpctransport.ConnectionBytes
	}
	return int(max(min(most, Descriptors()/2), LeastConnections))
}

// Records is how many bytes of the common part one recording of /trace may reserve.
func (b *Budget) Records() int64 {
	if b.Common == 0 {
		return recordsMost
	}
	return min(max(b.Common/recordsPart, recordsLeast), recordsMost)
}

// Descriptors is how many this process may have.
func Descriptors() int64 {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int64(files.Cur) //nolint:gosec // not above MaxInt32
}

// AddMetrics adds the metrics. own reports whether the pool is the allocator of the process.
func (b *Budget) AddMetrics(to *metrics.Metrics, own bool) {
	to.Add(b.refused)
	to.Gauge("tryst_memory_bytes", "Memory that the process may use, in bytes; 0 when it is not known.", func() float64 { return float64(b.Memory) })
	to.Gauge("tryst_memory_common_bytes", "The part of it that tensors, registered memory and graphs share, in bytes.", func() float64 { return float64(b.Common) })
	to.Kept.Add("go_heap", "free", freeHeap)
	if !own {
		return
	}
	to.Gauge("tryst_pool_used_bytes", "Memory of the pool that tensors use, in bytes.", func() float64 { return float64(b.Pool.Stats().InUse) })
	to.Gauge("tryst_pool_kept_bytes", "Free memory that the pool keeps for later tensors, in bytes.", func() float64 { return float64(b.Pool.Stats().Kept) })
	to.Kept.Add("pool", metrics.ForNext, func() int64 { return b.Pool.Stats().Kept })
}
