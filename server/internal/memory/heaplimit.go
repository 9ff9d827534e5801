package memory

import (
	"math"
	"runtime/debug"
	"sync"
)

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
