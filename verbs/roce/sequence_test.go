package roce

import (
	"encoding/binary"
	"testing"

	"github.com/tryst-rdma/tryst/verbs"
)

func native(b []byte) uint64       { return binary.NativeEndian.Uint64(b) }
func putNative(b []byte, v uint64) { binary.NativeEndian.PutUint64(b, v) }

// TestNumberOf: PSNs wrap at 2^24, and those less than 2^23 ahead are ahead.
func TestNumberOf(t *testing.T) {
	const half, all = 1 << 23, 1 << 24
	for _, c := range []struct {
		first verbs.PSN
		ref   uint64 // the reference
		off   int64  // relative to ref
		want  bool
	}{
		{0, 0, 0, true}, {psnMask, 0, 1, true}, {psnMask - 3, 0, 10, true}, {5, 0, half - 1, true},
		{5, 0, -1, false}, {0, 1, -1, true}, {0, 1, -2, false}, {7, 3 * all, half - 1, true}, {7, 3 * all, -half, true},
		{7, 3*all + 17, -1, true}, {7, half, -half, true}, {7, half - 1, -half, false},
	} {
		number := uint64(int64(c.ref) + c.off)
		got, ok := numberOf(c.first, psnOf(c.first, number), c.ref)
		if ok != c.want || ok && got != number {
			t.Errorf("first %#x, from %d on %d: %d, %v", c.first, c.ref, c.off, got, ok)
		}
	}
	// 2^23 ahead counts as behind.
	if got, ok := numberOf(7, psnOf(7, all+half), all); !ok || got != half {
		t.Errorf("2^23 ahead is %d, %v", got, ok)
	}
}
