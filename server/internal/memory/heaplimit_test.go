package memory

import (
	"runtime/debug"
	"testing"
)

// TestHeapHasWhatTensorsLeave: the limit of the Go heap follows the memory outside it in steps, and the heap always
// has a part.
func TestHeapHasWhatTensorsLeave(t *testing.T) {
	var set []int64
	h := &heapLimit{memory: 1 << 30, set: func(n int64) { set = append(set, n) }}
	h.add(1 << 20)
	if len(set) != 0 {
		t.Errorf("the limit was set for 1 MiB: %v", set)
	}
	h.add(511 << 20)
	h.add(512 << 20)
	h.add(-1024 << 20)
	all := int64(1<<30 - 1<<30/heapReserve)
	if len(set) != 3 || set[0] != all-512<<20 || set[1] != 1<<30/leastHeap || set[2] != all {
		t.Errorf("the limits are %v", set)
	}
	var none *heapLimit
	none.add(1 << 30)
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 30))
	if newHeapLimit(1<<30) != nil {
		t.Error("the limit of the user is replaced")
	}
}
