package memory

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHeapIsReleasedOnceAfterABurst: not during it, not again while nothing happens, and not when the
// heap has hardly grown. No timer runs afterwards.
func TestHeapIsReleasedOnceAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 10 * time.Second
		h := NewRelease(after)
		var heap, releases atomic.Uint64
		heap.Store(100 << 20)
		h.base = 40 << 20
		h.size = func() uint64 { return heap.Load() }
		h.release = func() { releases.Add(1); heap.Store(45 << 20) }
		for range 30 { // pauses below the quiet time
			h.Used()
			time.Sleep(after * (heapQuiet - 1))
		}
		synctest.Wait()
		if releases.Load() != 0 {
			t.Errorf("%d releases during the burst", releases.Load())
		}
		time.Sleep(time.Minute - after*(heapQuiet-1))
		synctest.Wait()
		if releases.Load() != 1 || h.timer.Running() {
			t.Errorf("%d releases a minute after the burst, the timer runs: %v", releases.Load(), h.timer.Running())
		}
		heap.Store(2*h.base + heapSlack)
		h.Used()
		time.Sleep(time.Hour)
		synctest.Wait()
		if releases.Load() != 1 || h.timer.Running() {
			t.Errorf("%d releases of a heap that has hardly grown, the timer runs: %v", releases.Load(), h.timer.Running())
		}
		heap.Add(1)
		h.Used()
		time.Sleep(time.Hour)
		synctest.Wait()
		if releases.Load() != 2 {
			t.Errorf("%d releases, want a second one", releases.Load())
		}
	})
}

// TestHeapThatShrankIsReleasedAgain: what the program held at one release does not set the bound for
// ever.
func TestHeapThatShrankIsReleasedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := NewRelease(time.Second)
		var heap, releases atomic.Uint64
		h.base = 40 << 20
		h.size = func() uint64 { return heap.Load() }
		h.release = func() { releases.Add(1) }
		for _, c := range []struct {
			heap, releases uint64
		}{
			{600 << 20, 1}, // the program holds it
			{600 << 20, 2}, // or did it only hold it during the release?
			{600 << 20, 2}, // the program holds it
			{40 << 20, 2},  // not any more
			{400 << 20, 3}, // garbage
		} {
			heap.Store(c.heap)
			h.Used()
			time.Sleep(time.Minute)
			synctest.Wait()
			if releases.Load() != c.releases {
				t.Errorf("%d releases with a heap of %d bytes, want %d", releases.Load(), c.heap, c.releases)
			}
		}
	})
}

// TestHeapSizeIsRead: the runtime has the metrics.
func TestHeapSizeIsRead(t *testing.T) {
	b := make([]byte, 64<<20)
	if n := heapSize(); n < uint64(len(b)) {
		t.Errorf("the heap has %d bytes, with %d in use", n, len(b))
	}
	runtime.KeepAlive(b)
}
