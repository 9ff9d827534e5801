package memory

import (
	"runtime"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
)

const (
	// heapQuiet is after how many intervals without any transfer the Go heap is released: one
	// more than the file cache and the pools need, whose memory is partly on the heap.
	heapQuiet = 4
	// heapSlack is how many bytes the heap may have grown beyond twice its last size without
	// being released. Less is not worth a garbage collection.
	heapSlack = 16 << 20
)

// Release gives the Go heap back to the system, once after each burst of transfers. The runtime
// collects garbage when the heap grows, or after two minutes, and returns its pages slowly
// afterwards: after a burst the heap would stay as large as it was.
//
// It does nothing while the heap is smaller than about twice the least that it was since the last
// time. A release that finds more than that in use leaves this bound as it was, once: what is in use
// may end soon after. So a program with a large heap of its own pays for two releases for each
// doubling at most.
type Release struct {
	timer *idle.Timer
	uses  atomic.Uint64

	// All below are used by the timer's sweep only.
	seen  uint64 // uses at the last sweep
	quiet int    // sweeps without a use since then
	base  uint64 // bytes of the heap after the last release, or at a sweep since then if it was smaller
	again bool   // the last release found much in use, and base is from before it

	size    func() uint64
	release func()
}

// NewRelease returns a Release that acts when nothing was used for some multiples of after; 0 is the default of
// package idle.
func NewRelease(after time.Duration) *Release {
	if after == 0 {
		after = idle.DefaultTime
	}
	h := &Release{size: heapSize, release: releaseHeap}
	h.base = h.size()
	h.timer = idle.NewTimer(after, h.sweep)
	return h
}

// Used notes that something was sent or received.
func (h *Release) Used() {
	h.uses.Add(1)
	h.timer.Start()
}

// Pending reports whether something was used and the heap has not been looked at since.
func (h *Release) Pending() bool { return h.timer.Running() }

func (h *Release) sweep(time.Duration) (more bool) {
	if n := h.uses.Load(); n != h.seen {
		h.seen, h.quiet = n, 0
	}
	size := h.size()
	h.base = min(h.base, size)
	if h.quiet++; h.quiet <= heapQuiet {
		return true
	}
	h.quiet = 0
	if most := 2*h.base + heapSlack; size > most {
		h.release()
		if size = h.size(); size <= most || h.again {
			h.base, h.again = size, false
		} else {
			h.again = true
		}
	}
	return false
}

// heapSize is how many bytes of the heap are in memory.
func heapSize() (n uint64) {
	s := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/unused:bytes"}, {Name: heapFree}}
	runtimemetrics.Read(s)
	for i := range s {
		n += value(s[i])
	}
	return n
}

// heapFree is the metric of the bytes that the runtime has free and has not returned to the system.
const heapFree = "/memory/classes/heap/free:bytes"

// freeHeap is how many bytes of the heap are free and in memory.
func freeHeap() int64 {
	s := []runtimemetrics.Sample{{Name: heapFree}}
	runtimemetrics.Read(s)
	return int64(value(s[0])) //nolint:gosec // below the size of memory
}

func value(s runtimemetrics.Sample) uint64 {
	if s.Value.Kind() != runtimemetrics.KindUint64 {
		return 0 // a later runtime without this metric
	}
	return s.Value.Uint64()
}

// releaseHeap collects garbage twice, since a sync.Pool (gRPC's buffers) gives its content up with
// the second collection.
func releaseHeap() {
	runtime.GC()
	debug.FreeOSMemory()
}
