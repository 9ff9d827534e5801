package graph

import "encoding/binary"

// childFrameID returns the id of the frame that an Enter node of iteration iter of the frame parent
// leads into. It is part of the rendezvous keys of values in loops, so it is that of TensorFlow
// (PropagatorState::FindOrCreateChildFrame). The root frame has the id 0.
func childFrameID(parent uint64, iter int64, name string) uint64 {
	return hashCombine(parent, hashCombine(uint64(iter), hash64(name)))
}

// hashCombine is TensorFlow's Hash64Combine (core/platform/hash.h).
func hashCombine(a, b uint64) uint64 { return a ^ (b + 0x9e3779b97f4a7800 + a<<10 + a>>4) }

// hash64 is TensorFlow's Hash64 with its default seed: MurmurHash64A (core/platform/hash.cc).
func hash64(s string) uint64 {
	const m, r, seed = 0xc6a4a7935bd1e995, 47, 0xdecafcaffe
	b := []byte(s)
	h := uint64(len(b)) * m
	h ^= seed
	for ; len(b) >= 8; b = b[8:] {
		k := binary.LittleEndian.Uint64(b)
		k *= m
		k ^= k >> r
		k *= m
		h ^= k
		h *= m
	}
	if len(b) > 0 {
		var tail [8]byte
		copy(tail[:], b)
		h ^= binary.LittleEndian.Uint64(tail[:])
		h *= m
	}
	h ^= h >> r
	h *= m
	h ^= h >> r
	return h
}
