package roce

import "github.com/tryst-rdma/tryst/verbs"

// psnMask is what a PSN has room for: 24 bits.
const psnMask = 1<<24 - 1

// Within the machines packets are numbered from 0 on, without wrapping; on the
// wire they carry the low 24 bits of the number plus the first PSN.

// psnOf is the PSN of a packet.
func psnOf(first verbs.PSN, number uint64) verbs.PSN {
	return verbs.PSN((uint64(first) + number) & psnMask)
}

// numberOf is the packet that a PSN means, as the one next to ref: PSNs up to
// 2^23 ahead are ahead, the others behind (specification, volume 1, 9.7.2). False
// for one before the first.
func numberOf(first, psn verbs.PSN, ref uint64) (uint64, bool) {
	ahead := (uint64(psn) - uint64(psnOf(first, ref))) & psnMask
	if ahead < 1<<23 {
		return ref + ahead, true
	}
	behind := psnMask + 1 - ahead
	return ref - behind, behind <= ref
}

// ring holds the work requests of a queue by their numbers. It grows as it is
// filled, so that a queue pair that has little to do has little memory.
type ring[T any] struct{ slots []T }

// at is the slot of a number that is in use.
func (r *ring[T]) at(number uint64) *T { return &r.slots[number%uint64(len(r.slots))] }

// grow makes room for one more, where those from oldest to next are in use; it
// has room for limit at most, which the caller watches.
func (r *ring[T]) grow(oldest, next uint64, limit int) {
	if next-oldest < uint64(len(r.slots)) {
		return
	}
	slots := make([]T, min(max(2*len(r.slots), minRing), limit))
	for i := oldest; i < next; i++ {
		slots[i%uint64(len(slots))] = *r.at(i)
	}
	r.slots = slots
}
