package server

import (
	"errors"
	"log/slog"
	"math"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tryst-rdma/tryst/server/internal/lograte"
	"github.com/tryst-rdma/tryst/tensor"
	grpctransport "github.com/tryst-rdma/tryst/transport/grpc"
)

// budget divides the memory of a process. This is the one place where the limits of different packages meet:
//
//	complete.divide ─► parts of their own       ─► requests, connections, copies, waiting receives: their packages refuse
//	                     └► Common: one tensor.Pool ─► tensors allocate there; registered memory, the messages of
//	                                                 channels and the graphs of sessions reserve there, before they are made
//
// What is in Common and off the Go heap leaves less for the heap, so the collector works harder then (heapLimit).
type budget struct {
	division
	common  *tensor.Pool
	heap    *heapLimit
	refused prometheus.Counter
}

// budgetOptions are the arguments of newBudget.
type budgetOptions struct {
	ReleaseAfter time.Duration // when unused memory of the pool is freed
	LimitHeap    bool          // see Options
	Logger       *slog.Logger
}

// newBudget makes the budget of a process, with the settings that divide has fitted.
func newBudget(b division, o budgetOptions) *budget {
	all := &budget{division: b, refused: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tryst_memory_refused_total", Help: "Tensors, graphs and registered memory that were refused, since the memory that they share is in use.",
	})}
	if o.LimitHeap && b.Memory != 0 {
		all.heap = newHeapLimit(b.Memory)
	}
	var seldom lograte.Limiter
	all.common = tensor.NewPool(tensor.PoolOptions{
		Limit: b.Common, Idle: o.ReleaseAfter, Advice: "give the process more memory (setting memory)", OffHeap: all.heap.add,
		Refused: func(err error) {
			all.refused.Inc()
			if not, ok := seldom.Now(); ok {
				o.Logger.Warn("memory is refused", "reason", err, "not_logged", not)
			}
		},
	})
	if b.Memory == 0 {
		o.Logger.Warn("the memory that this process may use is not known, so no limit follows from it; set memory")
		return all
	}
	o.Logger.Info("dividing memory", "common", b.Common, "parts", b.String())
	if advice := b.excess(); advice != "" {
		o.Logger.Warn("the limits together allow more than the memory of this process; "+advice+", or the system may end it", "sum", b.String())
	}
	return all
}

// reserve counts memory off the Go heap. It is regmem's.
func (b *budget) reserve(n int64) (release func(), err error) {
	held, err := b.common.Reserve(n)
	if err != nil {
		return nil, err
	}
	b.heap.add(n)
	return func() {
		b.heap.add(-n)
		held.Release()
	}, nil
}

// connections is how many gRPC connections are accepted in all: those whose buffers fit, and that leave half of the
// descriptors to everything else.
func (b *budget) connections() int {
	most := int64(math.MaxInt32)
	if b.Connections != 0 {
		most = b.Connections / grpctransport.ConnectionBytes
	}
	return int(max(min(most, descriptors()/2), leastConnections))
}

// descriptors is how many this process may have.
func descriptors() int64 {
	var files syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &files); err != nil || files.Cur > math.MaxInt32 {
		return math.MaxInt32
	}
	return int64(files.Cur) //nolint:gosec // not above MaxInt32
}

// addBudget adds the metrics of the budget.
func (n *node) addBudget(b *budget) {
	n.metrics.Add(b.refused)
	n.metrics.Gauge("tryst_memory_bytes", "Memory that the process may use, in bytes; 0 when it is not known.", func() float64 { return float64(b.Memory) })
	n.metrics.Gauge("tryst_memory_common_bytes", "The part of it that tensors, registered memory and graphs share, in bytes.", func() float64 { return float64(b.Common) })
}

// memoryLimit returns how many bytes this process may use: the limit of its control group or the memory of the
// machine, whichever is less; 0 when neither is known. The error tells why a limit of the control group, which may
// exist, is not known.
func memoryLimit(group, system memlimit.Provider) (limit int64, unread error) {
	least := uint64(math.MaxInt64)
	m, err := group()
	switch {
	case err == nil:
		least = min(least, m)
	case !errors.Is(err, memlimit.ErrNoLimit) && !errors.Is(err, memlimit.ErrNoCgroup) && !errors.Is(err, memlimit.ErrCgroupsNotSupported):
		unread = err
	}
	if m, err := system(); err == nil {
		least = min(least, m)
	}
	if least == math.MaxInt64 {
		return 0, unread
	}
	return int64(least), unread
}

// heapLimit sets the soft limit of the Go runtime: the memory of the process without what it uses outside
// the Go heap, and a reserve. A nil heapLimit sets none.
type heapLimit struct {
	memory int64
	set    func(int64)

	mu      sync.Mutex // guards what follows
	outside int64
	last    int64 // outside when the limit was set
}

// newHeapLimit returns nil when the user has set a limit.
func newHeapLimit(memory int64) *heapLimit {
	if debug.SetMemoryLimit(-1) != math.MaxInt64 { // GOMEMLIMIT, or the program
		return nil
	}
	h := &heapLimit{memory: memory, set: func(n int64) { debug.SetMemoryLimit(n) }}
	h.set(h.limit())
	return h
}

// limit is at least a part of the memory: with less the collector would run all the time.
func (h *heapLimit) limit() int64 {
	return max(h.memory-h.memory/heapReserve-h.outside, h.memory/leastHeap)
}

// add notes a change of the memory outside the heap. The limit follows in steps, since setting it stops the
// program for a moment.
func (h *heapLimit) add(n int64) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.outside += n
	if d := h.outside - h.last; max(d, -d) >= h.memory/heapSteps {
		h.last = h.outside
		h.set(h.limit())
	}
}

// processMemory returns how many bytes this process may use, when no setting says so; 0 when nothing tells.
func (o *Options) processMemory(setting int64) int64 {
	if o.memory != 0 || setting != 0 {
		return o.memory
	}
	group := o.memoryOfGroup
	if group == nil {
		group = memlimit.FromCgroup
	}
	memory, unread := memoryLimit(group, memlimit.FromSystem)
	if unread != nil && o.Logger != nil {
		o.Logger.Warn("the memory limit of the control group cannot be read, so the memory of the whole host counts as that of this process; set memory", "reason", unread)
	}
	return memory
}
