package delta

import (
	"encoding/binary"
	"math/bits"
)

// changes are the elements in which two versions of a block differ.
type changes struct {
	gaps   []uint32 // elements that did not change before each that did
	values []uint64 // XORed, little-endian
	all    uint64   // the values ORed
	last   int      // the element after the last one that changed
}

// find fills c with the changes of a block. It returns false, with some of them, when there are
// more than limit.
func (c *changes) find(old, new []byte, unit, limit int) bool {
	shift := uint(bits.TrailingZeros(uint(unit)))
	c.gaps, c.values, c.all, c.last = c.gaps[:0], c.values[:0], 0, 0
	i := 0
	for ; i+32 <= len(new); i += 32 {
		o, n := old[i:i+32:i+32], new[i:i+32:i+32]
		x0 := binary.LittleEndian.Uint64(o) ^ binary.LittleEndian.Uint64(n)
		x1 := binary.LittleEndian.Uint64(o[8:]) ^ binary.LittleEndian.Uint64(n[8:])
		x2 := binary.LittleEndian.Uint64(o[16:]) ^ binary.LittleEndian.Uint64(n[16:])
		x3 := binary.LittleEndian.Uint64(o[24:]) ^ binary.LittleEndian.Uint64(n[24:])
		if x0|x1|x2|x3 == 0 {
			continue
		}
		c.word(i, x0, shift)
		c.word(i+8, x1, shift)
		c.word(i+16, x2, shift)
		c.word(i+24, x3, shift)
		if len(c.gaps) > limit {
			return false
		}
	}
	for ; i < len(new); i += 8 {
		c.word(i, load(old[i:])^load(new[i:]), shift)
	}
	return len(c.gaps) <= limit
}

// word adds the changes in the 8 bytes at an offset of the block, whose XOR is x.
// An element has 1<<shift bytes.
func (c *changes) word(offset int, x uint64, shift uint) {
	mask := ^uint64(0) >> (64 - 8<<shift)
	for x != 0 {
		low := uint(bits.TrailingZeros64(x)) >> (3 + shift) << (3 + shift)
		value := x >> low & mask
		x &^= value << low
		at := (offset + int(low>>3)) >> shift
		c.gaps = append(c.gaps, uint32(at-c.last))
		c.values = append(c.values, value)
		c.all |= value
		c.last = at + 1
	}
}

// load returns the first 8 bytes of b, or what there are, and zeros.
func load(b []byte) uint64 {
	if len(b) >= 8 {
		return binary.LittleEndian.Uint64(b)
	}
	var last [8]byte
	copy(last[:], b)
	return binary.LittleEndian.Uint64(last[:])
}

// xorAt changes the elements of dst at the given positions, which are within it.
func xorAt(dst []byte, unit int, positions []uint32, values []uint64) {
	switch unit {
	case 1:
		for i, p := range positions {
			dst[p] ^= byte(values[i])
		}
	case 2:
		for i, p := range positions {
			b := dst[2*p : 2*p+2]
			binary.LittleEndian.PutUint16(b, binary.LittleEndian.Uint16(b)^uint16(values[i]))
		}
	case 4:
		for i, p := range positions {
			b := dst[4*p : 4*p+4]
			binary.LittleEndian.PutUint32(b, binary.LittleEndian.Uint32(b)^uint32(values[i]))
		}
	case 8:
		for i, p := range positions {
			b := dst[8*p : 8*p+8]
			binary.LittleEndian.PutUint64(b, binary.LittleEndian.Uint64(b)^values[i])
		}
	}
}
