package tcp

import (
	"runtime"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

// TestIdleQueuePairsHoldNoBuffers: a connection on which nothing comes and goes has given its
// buffers back, so it costs little memory; and no timer of it runs.
func TestIdleQueuePairsHoldNoBuffers(t *testing.T) {
	if copiesFirst {
		return // the race detector's own memory counts too
	}
	a, b := newSide(t, Options{ListenOn: "127.0.0.1:0"}, 64), newSide(t, Options{ListenOn: "127.0.0.1:0"}, 64)
	connect(a, b)
	use := func(a, b *side) {
		for _, s := range []*side{a, b} {
			s.post(s.write(map[*side]*side{a: b, b: a}[s], 1, 0, 8))
			s.expect(1, verbs.StatusOK)
		}
	}
	use(a, b)
	heap := func() uint64 {
		var m runtime.MemStats
		for range 3 { // pools keep buffers for two collections
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	const n = 50
	var sides []*side
	for range n {
		x, y := pair(t, 64)
		use(x, y)
		sides = append(sides, x, y)
	}
	each := int64(0)
	for range 50 { // the last readers are about to wait
		if each = (int64(heap()) - int64(before)) / (2 * n); each <= readBytes {
			break
		}
	}
	t.Logf("an idle queue pair with its device takes %d bytes of heap", each)
	if each > readBytes {
		t.Errorf("an idle queue pair takes %d bytes of heap: its buffers have %d and %d", each, readBytes, stagingBytes)
	}
	for _, s := range sides {
		s.qp.mu.Lock()
		if at, ok := s.qp.machine.deadline(); ok {
			t.Errorf("a timer at %v", at)
		}
		s.qp.mu.Unlock()
	}
}
