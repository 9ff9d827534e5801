package graph

import (
	"slices"
	"sync/atomic"
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
}

// take counts n bytes, if they are within the limit; give follows.
func (h *held) take(n int64) bool {
	for {
		used := h.used.Load()
		if used+n > h.limit {
			return false
		}
		if h.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
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
