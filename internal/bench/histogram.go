package bench

import (
	"math/bits"
	"time"
)

// subBits: each power of two is cut into 64 parts, so a percentile is right
// within 1.6 %.
const subBits = 6

// histogram counts durations in parts of a power of two of nanoseconds. Adding
// to it allocates nothing.
type histogram struct {
	parts [(64 - subBits) << subBits]int64
	count int64
}

// part returns the index of d's part. Below 64 ns each nanosecond has its own.
func part(d time.Duration) int {
	v := uint64(max(d, 0))
	shift := max(bits.Len64(v)-subBits-1, 0)
	return shift<<subBits + int(v>>shift)
}

// middle returns the middle of a part.
func middle(part int) time.Duration {
	if part < 2<<subBits {
		return time.Duration(part)
	}
	shift := part>>subBits - 1
	low := uint64(part-shift<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// add counts d n times.
func (h *histogram) add(d time.Duration, n int64) {
	h.parts[part(d)] += n
	h.count += n
}

// merge adds what other has.
func (h *histogram) merge(other *histogram) {
	for i, n := range other.parts {
		h.parts[i] += n
	}
	h.count += other.count
}

// percentile returns the duration that p of all (0 to 1) do not exceed; 0 when
// nothing was counted.
func (h *histogram) percentile(p float64) time.Duration {
	rank := min(int64(p*float64(h.count)), h.count-1)
	for i, n := range h.parts {
		if rank -= n; rank < 0 && n > 0 {
			return middle(i)
		}
	}
	return 0
}
