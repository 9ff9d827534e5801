package server

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// TestHeapIsReleasedOnceAfterABurst: not during it, not again while nothing happens, and not when the
// heap has hardly grown. No timer runs afterwards.
func TestHeapIsReleasedOnceAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 10 * time.Second
		h := newHeapRelease(after)
		heap, releases := uint64(100<<20), 0
		h.base = 40 << 20
		h.size = func() uint64 { return heap }
		h.release = func() { releases++; heap = 45 << 20 }
		for range 30 { // pauses below the quiet time
			h.used()
			time.Sleep(after * (heapQuiet - 1))
		}
		synctest.Wait()
		if releases != 0 {
			t.Errorf("%d releases during the burst", releases)
		}
		time.Sleep(time.Minute - after*(heapQuiet-1))
		synctest.Wait()
		if releases != 1 || h.timer.Running() {
			t.Errorf("%d releases a minute after the burst, the timer runs: %v", releases, h.timer.Running())
		}
		heap = 2*h.base + heapSlack
		h.used()
		time.Sleep(time.Hour)
		synctest.Wait()
		if releases != 1 || h.timer.Running() {
			t.Errorf("%d releases of a heap that has hardly grown, the timer runs: %v", releases, h.timer.Running())
		}
		heap++
		h.used()
		time.Sleep(time.Hour)
		synctest.Wait()
		if releases != 2 {
			t.Errorf("%d releases, want a second one", releases)
		}
	})
}

// TestHeapSizeIsRead: the runtime has the metrics.
func TestHeapSizeIsRead(t *testing.T) {
	runtime.GC() // what other tests have left would be collected meanwhile
	before := heapSize()
	b := make([]byte, 64<<20)
	if after := heapSize(); before == 0 || after < before+32<<20 { // other goroutines may give memory back meanwhile
		t.Errorf("the heap has %d bytes, and %d after an allocation of %d", before, after, len(b))
	}
}
