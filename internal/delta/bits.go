package delta

import (
	"encoding/binary"
	"math/bits"
)

// bitWriter appends numbers of some bits each. The first one has the lowest bits of the first byte.
type bitWriter struct {
	out []byte
	acc uint64 // what out does not have yet: n bits, fewer than 8
	n   uint
}

// write appends the n low bits of v, at most 56. Its other bits are 0.
func (w *bitWriter) write(v uint64, n uint) {
	w.acc |= v << w.n
	w.n += n
	w.out = binary.LittleEndian.AppendUint64(w.out, w.acc)[:len(w.out)+int(w.n>>3)]
	w.acc >>= w.n &^ 7
	w.n &= 7
}

// writeLong appends the n low bits of v, at most 64.
func (w *bitWriter) writeLong(v uint64, n uint) {
	if n > 32 {
		w.write(v&(1<<32-1), 32)
		v, n = v>>32, n-32
	}
	w.write(v, n)
}

// writeGap appends a gap: its upper bits as that many zeros and a one, and its k low bits. With
// maxUnary zeros it has gapBits instead (PROTOCOL.md section 13.2).
func (w *bitWriter) writeGap(gap uint32, k uint) {
	if q := uint(gap >> k); q < maxUnary {
		w.write((1|uint64(gap)&(1<<k-1)<<1)<<q, q+1+k)
		return
	}
	w.write(uint64(gap)<<maxUnary, maxUnary+gapBits)
}

// close pads with zeros to a whole byte, and returns everything.
func (w *bitWriter) close() []byte {
	if w.n > 0 {
		w.out = append(w.out, byte(w.acc))
		w.acc, w.n = 0, 0
	}
	return w.out
}

// bitReader reads what a bitWriter wrote. Beyond the end it reads zeros, and ended returns false.
type bitReader struct {
	in []byte
	at uint // in bits
}

// peek returns the next bits, at least 57.
func (r *bitReader) peek() uint64 {
	if i := r.at >> 3; i+8 <= uint(len(r.in)) {
		return binary.LittleEndian.Uint64(r.in[i:]) >> (r.at & 7)
	}
	return r.tail()
}

// tail is peek within the last 8 bytes.
func (r *bitReader) tail() uint64 {
	var last [8]byte
	if i := r.at >> 3; i < uint(len(r.in)) {
		copy(last[:], r.in[i:])
	}
	return binary.LittleEndian.Uint64(last[:]) >> (r.at & 7)
}

// readLong returns the next n bits, at most 64.
func (r *bitReader) readLong(n uint) uint64 {
	var low uint64
	if n > 32 {
		low = r.peek() & (1<<32 - 1)
		r.at += 32
		high := r.peek() & (1<<(n-32) - 1)
		r.at += n - 32
		return low | high<<32
	}
	low = r.peek() & (1<<n - 1)
	r.at += n
	return low
}

// readGap returns the next gap.
func (r *bitReader) readGap(k uint) uint32 {
	x := r.peek()
	q := uint(bits.TrailingZeros64(x))
	if q < maxUnary {
		r.at += q + 1 + k
		return uint32(q<<k) | uint32(x>>(q+1))&(1<<k-1)
	}
	r.at += maxUnary + gapBits
	return uint32(x>>maxUnary) & (1<<gapBits - 1)
}

// ended reports whether exactly everything was read, but for zeros up to a whole byte.
func (r *bitReader) ended() bool {
	return (r.at+7)>>3 == uint(len(r.in)) && r.tail() == 0
}

// gapParameter returns the number of low bits with which the gaps take the fewest bits.
func gapParameter(gaps []uint32) uint {
	var byLen [gapBits + 1]int
	for _, g := range gaps {
		byLen[bits.Len32(g)]++
	}
	best, least := uint(0), -1
	for k := range uint(gapBits) {
		total := 0
		for n, count := range byLen {
			middle := uint(3) << n >> 2 // of the numbers with n bits
			q := middle >> k
			if q < maxUnary {
				total += count * int(q+1+k)
			} else {
				total += count * (maxUnary + gapBits)
			}
		}
		if least < 0 || total < least {
			best, least = k, total
		}
	}
	return best
}
