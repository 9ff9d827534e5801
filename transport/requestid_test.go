package transport

import "testing"

// TestQ6UniqueRequestID: a million ids differ and none is 0, also when 0 is drawn.
func TestQ6UniqueRequestID(t *testing.T) {
	const n = 1_000_000
	seen := make(map[int64]struct{}, n)
	for range n {
		seen[NewRequestID()] = struct{}{}
	}
	if _, ok := seen[0]; ok || len(seen) != n {
		t.Errorf("%d of %d ids differ, and 0 is one: %v", len(seen), n, ok)
	}
	draws := []int64{0, 0, 7}
	id := requestID(func() int64 {
		x := draws[0]
		draws = draws[1:]
		return x
	})
	if id != 7 {
		t.Errorf("got the id %d, want the first that is not 0", id)
	}
}
