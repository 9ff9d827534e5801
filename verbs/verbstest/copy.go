package verbstest

import "bytes"

// zeroPage is what untouched memory reads as.
var zeroPage [pageSize]byte

// copyPieces copies n bytes from one scatter list to another, each from an
// offset on. Both are long enough.
func copyPieces(dst [][]byte, dstOff uint64, src [][]byte, srcOff, n uint64) {
	d, s := 0, 0
	for n > 0 {
		for dstOff >= uint64(len(dst[d])) {
			dstOff -= uint64(len(dst[d]))
			d++
		}
		for srcOff >= uint64(len(src[s])) {
			srcOff -= uint64(len(src[s]))
			s++
		}
		to, from := dst[d][dstOff:], src[s][srcOff:]
		k := min(uint64(len(to)), uint64(len(from)), n)
		copySparse(to[:k], from[:k])
		dstOff += k
		srcOff += k
		n -= k
	}
}

// copySparse copies, but writes no page that is empty on both sides: reading an
// untouched page of a mapping takes no memory, writing one does. So tensors of
// many gigabytes can be moved on small machines.
func copySparse(dst, src []byte) {
	if len(src) < sparseFrom {
		copy(dst, src)
		return
	}
	for len(src) > 0 {
		k := min(len(src), pageSize)
		if !bytes.Equal(src[:k], zeroPage[:k]) || !bytes.Equal(dst[:k], zeroPage[:k]) {
			copy(dst, src[:k])
		}
		dst, src = dst[k:], src[k:]
	}
}
