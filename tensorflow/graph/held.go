package graph

import (
	"slices"
	"sync/atomic"
)

// held counts the state that one step holds: that of the iterations that run ahead in its loops, and
// of the functions that it calls. Loops in loops, and functions that call themselves more than once,
// hold more than any limit of one loop or of the depth of calls allows. It is shared by the run of a
// graph and those of the functions that it calls.
//
// One iteration of each frame is part of what its caller or its outer iteration has taken
// (framePlan.state), so that a loop can always go on with one.
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
