package verbstest

import "bytes"

// zeroPage is the content of an untouched page.
var zeroPage [pageSize]byte

// copyBuffers copies n bytes from src at srcOff to dst at dstOff, both lists of buffers. The
// caller ensures that both are long enough.
func copyBuffers(dst [][]byte, dstOff uint64, src [][]byte, srcOff, n uint64) {
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

// copySparse copies src to dst, but does not write pages that are zero on both sides.
// Reading an untouched page of a mapping allocates no memory, writing one does. So tests
// can move tensors larger than the memory of the machine.
func copySparse(dst, src []byte) {
	if len(src) < sparseMin {
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
