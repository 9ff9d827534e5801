package graph

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tryst-rdma/tryst/tensor"
)

// held bounds the state of one step: that of loop iterations that run ahead, and that of function
// calls. Limits per loop and on the depth of calls are not enough, since nested loops and recursive
// functions multiply. The run of a graph and the runs of the functions that it calls share one held.
//
// A caller or an outer iteration takes the state of one iteration of each inner frame in advance
// (framePlan.state), so that each loop can always run one iteration.
type held struct {
	limit int64 // in bytes
	used  atomic.Int64

	// What is used is reserved in from, the allocator of the step, in parts that are given back when the run ends.
	from     tensor.Allocator
	reserved atomic.Int64 // bytes of parts
	mu       sync.Mutex   // guards parts
	parts    []*tensor.Buffer
}

// take counts n bytes, if they are within the limit and the allocator has them; give follows.
func (h *held) take(n int64) bool {
	for {
		used := h.used.Load()
		if used+n > h.limit {
			return false
		}
		if !h.used.CompareAndSwap(used, used+n) {
			continue
		}
		if used+n > h.reserved.Load() && !h.reserve(used+n) {
			h.give(n)
			return false
		}
		return true
	}
}

// reserve reserves n bytes in all.
func (h *held) reserve(n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	more := n - h.reserved.Load()
	if more <= 0 {
		return true
	}
	more = max(more, stateStep)
	part, err := tensor.Reserve(h.from, more)
	if err != nil {
		return false
	}
	h.parts = append(h.parts, part)
	h.reserved.Add(more)
	return true
}

// release gives all parts back.
func (h *held) release() {
	for _, part := range h.parts {
		part.Release()
	}
	h.parts = nil
}

func (h *held) give(n int64) { h.used.Add(-n) }

// setState sets framePlan.state of all frames. A frame comes after its outer one.
func (p *plan) setState(fs *frames) {
	for i, f := range slices.Backward(p.frames) {
		f.state += stateOfIteration + stateOfNode*int64(len(f.pending)) + stateOfInput*int64(f.inputs)
		if outer := fs.all[i].parent; outer != nil {
			p.frames[outer.index].state += f.state
		}
	}
}
