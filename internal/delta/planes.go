package delta

import "encoding/binary"

// Byte planes: first byte 0 of each element, then byte 1 of each, and so on. In the XOR of two
// versions the planes of sign and exponent are mostly zeros, which zstd packs better when the
// mantissas are not between them.

// xorPlanes writes the planes of old XOR new into planes. All have the same length, a multiple of
// unit.
func xorPlanes(planes, old, new []byte, unit int) {
	if unit == 2 {
		xorPlanes2(planes, old, new)
		return
	}
	n := len(new) / unit
	i := 0
	for ; i+8 <= len(new); i += 8 {
		x := binary.LittleEndian.Uint64(old[i:]) ^ binary.LittleEndian.Uint64(new[i:])
		switch unit {
		case 1:
			binary.LittleEndian.PutUint64(planes[i:], x)
		case 4:
			for j := range 4 {
				y := x >> (8 * j)
				binary.LittleEndian.PutUint16(planes[j*n+i/4:], uint16(y&0xff|y>>24&0xff00))
			}
		case 8:
			for j := range 8 {
				planes[j*n+i/8] = byte(x >> (8 * j))
			}
		}
	}
	for ; i < len(new); i++ {
		planes[i%unit*n+i/unit] = old[i] ^ new[i]
	}
}

// xorPlanes2 is xorPlanes for elements of 2 bytes.
func xorPlanes2(planes, old, new []byte) {
	n := len(new) / 2
	low, high := planes[:n], planes[n:]
	i := 0
	for ; i+8 <= len(new); i += 8 {
		x := binary.LittleEndian.Uint64(old[i:]) ^ binary.LittleEndian.Uint64(new[i:])
		binary.LittleEndian.PutUint32(low[i/2:], evenBytes(x))
		binary.LittleEndian.PutUint32(high[i/2:], evenBytes(x>>8))
	}
	for ; i < len(new); i += 2 {
		low[i/2], high[i/2] = old[i]^new[i], old[i+1]^new[i+1]
	}
}

// evenBytes returns bytes 0, 2, 4 and 6.
func evenBytes(x uint64) uint32 {
	x &= 0x00ff00ff00ff00ff
	x = (x | x>>8) & 0x0000ffff0000ffff
	return uint32(x | x>>16)
}

// spreadBytes is the inverse of evenBytes: bytes 1, 3, 5 and 7 are 0.
func spreadBytes(v uint32) uint64 {
	x := uint64(v)
	x = (x | x<<16) & 0x0000ffff0000ffff
	return (x | x<<8) & 0x00ff00ff00ff00ff
}

// applyPlanes writes base XOR the elements in planes into dst, which may be base. All have the same
// length, a multiple of unit.
func applyPlanes(dst, base, planes []byte, unit int) {
	n := len(dst) / unit
	i := 0
	for ; i+8 <= len(dst); i += 8 {
		var x uint64
		switch unit {
		case 1:
			x = binary.LittleEndian.Uint64(planes[i:])
		case 2:
			x = spreadBytes(binary.LittleEndian.Uint32(planes[i/2:])) | spreadBytes(binary.LittleEndian.Uint32(planes[n+i/2:]))<<8
		case 4:
			for j := range 4 {
				y := uint64(binary.LittleEndian.Uint16(planes[j*n+i/4:]))
				x |= (y&0xff | y&0xff00<<24) << (8 * j)
			}
		case 8:
			for j := range 8 {
				x |= uint64(planes[j*n+i/8]) << (8 * j)
			}
		}
		binary.LittleEndian.PutUint64(dst[i:], binary.LittleEndian.Uint64(base[i:])^x)
	}
	for ; i < len(dst); i++ {
		dst[i] = base[i] ^ planes[i%unit*n+i/unit]
	}
}

// valuePlanes appends the planes of values of width bytes.
func valuePlanes(out []byte, values []uint64, shift uint, width int) []byte {
	for j := range width {
		for _, v := range values {
			out = append(out, byte(v>>shift>>(8*j)))
		}
	}
	return out
}
