package server

import (
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tryst-rdma/tryst/internal/checkpoint"
)

// TestHeapIsReleasedOnceAfterABurst: not during it, not again while nothing happens, and not when the
// heap has hardly grown. No timer runs afterwards.
func TestHeapIsReleasedOnceAfterABurst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const after = 10 * time.Second
		h := newHeapRelease(after)
		var heap, releases atomic.Uint64
		heap.Store(100 << 20)
		h.base = 40 << 20
		h.size = func() uint64 { return heap.Load() }
		h.release = func() { releases.Add(1); heap.Store(45 << 20) }
		for range 30 { // pauses below the quiet time
			h.used()
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
		h.used()
		time.Sleep(time.Hour)
		synctest.Wait()
		if releases.Load() != 1 || h.timer.Running() {
			t.Errorf("%d releases of a heap that has hardly grown, the timer runs: %v", releases.Load(), h.timer.Running())
		}
		heap.Add(1)
		h.used()
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
		h := newHeapRelease(time.Second)
		var heap, releases atomic.Uint64
		h.base = 40 << 20
		h.size = func() uint64 { return heap.Load() }
		h.release = func() { releases.Add(1) }
		for _, c := range []struct {
			heap, releases uint64
		}{
			{600 << 20, 1}, // the program holds it
			{40 << 20, 1},  // not any more
			{400 << 20, 2}, // garbage
		} {
			heap.Store(c.heap)
			h.used()
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

// TestProbesAndListsDoNotKeepTheHeap: a probe that comes every ten seconds would put off the release of
// the heap for ever.
func TestProbesAndListsDoNotKeepTheHeap(t *testing.T) {
	s := publisher(t, "127.0.0.1:0", checkpointFile(t, false))
	if _, err := healthpb.NewHealthClient(dialPlainly(t, s.Addr().String())).Check(t.Context(), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	c := dial(t, Config{}, s.Addr().String())
	if _, err := c.Puller().List(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := s.heap.uses.Load(); n != 0 || s.heap.timer.Running() {
		t.Errorf("%d uses by calls without tensors, the timer runs: %v", n, s.heap.timer.Running())
	}
	for x, err := range c.Puller().Pull(t.Context(), checkpoint.PullRequest{}) {
		if err != nil {
			t.Fatal(err)
		}
		x.Release()
	}
	if s.heap.uses.Load() == 0 {
		t.Error("a pull is no use")
	}
}

// TestSendingOverVerbsReleasesTheHeap: responses over a channel come with no call of gRPC, and the
// tensors of a process that only sends may be on its heap.
func TestSendingOverVerbsReleasesTheHeap(t *testing.T) {
	w := newVerbsTown(t, 2)
	from, to := w.start(0), w.start(1)
	w.up(to, from.Task())
	w.exchange(1, from, to, 7)
	if got := to.Received(); got["verbs"] != 1 {
		t.Fatalf("received over %v", got)
	}
	if from.heap.uses.Load() == 0 || !from.heap.timer.Running() {
		t.Error("nothing releases the heap of the sender")
	}
}
