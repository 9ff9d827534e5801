package grpctransport

import "testing"

// TestFramePool: buffers have the requested length, are reused, and at most maxIdleFrames are kept.
func TestFramePool(t *testing.T) {
	p := newFramePool()
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
