package soft

import "testing"

// TestRingGrows: a ring grows with its contents, up to its limit.
func TestRingGrows(t *testing.T) {
	var r Ring[uint64]
	const limit = 40
	oldest, next := uint64(0), uint64(0)
	for step := range 200 {
		for next-oldest < uint64(min(step, limit)) {
			r.Grow(oldest, next, limit)
			*r.At(next) = next
			next++
		}
		for i := oldest; i < next; i++ {
			if *r.At(i) != i {
				t.Fatalf("slot %d holds %d", i, *r.At(i))
			}
		}
		oldest += uint64(step % 5)
		oldest = min(oldest, next)
	}
	if len(r.slots) != limit {
		t.Errorf("%d slots, and %d are enough", len(r.slots), limit)
	}
}
