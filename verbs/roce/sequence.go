package roce

import "github.com/tryst-rdma/tryst/verbs"

// psnMask is the range of a PSN: 24 bits.
const psnMask = 1<<24 - 1

// The machines number packets from 0 on, without wrapping. On the wire, a packet has
// the low 24 bits of the first PSN plus its number.

// psnOf returns the PSN of a packet.
func psnOf(first verbs.PSN, number uint64) verbs.PSN {
	return verbs.PSN((uint64(first) + number) & psnMask)
}

// numberOf returns the packet number that a PSN stands for, close to ref: PSNs less
// than 2^23 ahead of ref are ahead of it, all others behind (specification, volume 1,
// 9.7.2). It returns false for a packet before the first one.
func numberOf(first, psn verbs.PSN, ref uint64) (uint64, bool) {
	ahead := (uint64(psn) - uint64(psnOf(first, ref))) & psnMask
	if ahead < 1<<23 {
		return ref + ahead, true
	}
	behind := psnMask + 1 - ahead
	return ref - behind, behind <= ref
}
