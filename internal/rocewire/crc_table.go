package rocewire

import (
	"encoding/binary"
	"hash/crc32"
)

// The CRC of hash/crc32 for short inputs. For the few bytes of a header, the call to
// hash/crc32 costs more than the computation, and makes its argument escape to the
// heap.

// sliceTables are the tables of a CRC that processes four bytes at a time:
// sliceTables[i] holds the effect of a byte that i of the four bytes follow.
var sliceTables = func() (t [4]crc32.Table) {
	t[0] = *crc32.IEEETable
	for i := 1; i < len(t); i++ {
		for v, r := range t[i-1] {
			t[i][v] = r>>8 ^ t[0][byte(r)]
		}
	}
	return t
}()

// update4 advances the register by four bytes, which the caller has added to it
// (exclusive or, little-endian).
func update4(r uint32) uint32 {
	return sliceTables[3][byte(r)] ^ sliceTables[2][byte(r>>8)] ^ sliceTables[1][byte(r>>16)] ^ sliceTables[0][r>>24]
}

// updateShort advances the register over b.
func updateShort(r uint32, b []byte) uint32 {
	for ; len(b) >= 4; b = b[4:] {
		r = update4(r ^ binary.LittleEndian.Uint32(b))
	}
	for _, v := range b {
		r = sliceTables[0][byte(r)^v] ^ r>>8
	}
	return r
}

// nibbleTable is the table of a CRC that processes four bits at a time. It holds the
// reduction of a multiplication by x^4.
var nibbleTable = [16]uint32{
	0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
	0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
}
