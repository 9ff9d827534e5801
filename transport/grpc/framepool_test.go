package grpctransport

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tryst-rdma/tryst/internal/idle"
)

// TestFramePool: buffers have the requested length, are reused, and at most maxIdleFrames are kept.
func TestFramePool(t *testing.T) {
	p := newFramePool(0)
	for _, n := range []int{0, 1, 1024, 1025, frameSize - 1, frameSize, frameSize + 1, 1 << 20, 1<<20 + 1} {
		b := p.Get(n)
		if len(*b) != n {
			t.Errorf("%d bytes asked for, %d got", n, len(*b))
		}
		*b = (*b)[:n/2] // gRPC gives back a beginning of the buffer
		p.Put(b)
	}
	if len(p.idle) != 1 { // the same one each time
		t.Errorf("%d buffers are kept", len(p.idle))
	}
	var out []*[]byte
	for range maxIdleFrames + 100 {
		out = append(out, p.Get(frameSize))
	}
	for _, b := range out {
		p.Put(b)
	}
	if len(p.idle) != maxIdleFrames {
		t.Errorf("%d buffers are kept, want %d", len(p.idle), maxIdleFrames)
	}
	seen := make(map[*byte]bool)
	for range maxIdleFrames {
		b := p.Get(frameSize)
		if seen[&(*b)[0]] {
			t.Fatal("a buffer was given out twice")
		}
		seen[&(*b)[0]] = true
	}
}

// TestUnusedFramesAreFreed: a steady load keeps the buffers that it uses, and after it none is kept.
func TestUnusedFramesAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newFramePool(0)
		known := make(map[*byte]bool)
		use := func(n int) {
			var out []*[]byte
			for range n {
				out = append(out, p.Get(frameSize))
			}
			for _, b := range out {
				known[&(*b)[0]] = true
			}
			for _, b := range out {
				p.Put(b)
			}
		}
		use(100)
		for range 5 {
			time.Sleep(idle.DefaultTime - time.Second)
			use(3)
		}
		if n := p.kept(); n != 3*frameSize || len(known) != 100 {
			t.Errorf("%d bytes are kept for a load of %d, and %d buffers were made; want 100", n, 3*frameSize, len(known))
		}
		time.Sleep(3 * idle.DefaultTime)
		synctest.Wait()
		if n := p.kept(); n != 0 || p.timer.Running() {
			t.Errorf("%d bytes are kept without use, the timer runs: %v", n, p.timer.Running())
		}
	})
}
