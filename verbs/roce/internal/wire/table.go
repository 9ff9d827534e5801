package wire

import (
	"encoding/binary"
	"hash/crc32"
)

// What hash/crc32 does, for the few bytes of a header: calling it costs more than
// the work, and takes its argument to the heap.

// byBytes are the tables of a CRC that takes four bytes at a time: byBytes[i] has
// what a byte does that i bytes of the four follow.
var byBytes = func() (t [4]crc32.Table) {
	t[0] = *crc32.IEEETable
	for i := 1; i < len(t); i++ {
		for v, r := range t[i-1] {
			t[i][v] = r>>8 ^ t[0][byte(r)]
		}
	}
	return t
}()

// fourBytes takes the register, to which four bytes have been added, little-endian,
// over these bytes.
func fourBytes(r uint32) uint32 {
	return byBytes[3][byte(r)] ^ byBytes[2][byte(r>>8)] ^ byBytes[1][byte(r>>16)] ^ byBytes[0][r>>24]
}

// fewBytes takes the register over b.
func fewBytes(r uint32, b []byte) uint32 {
	for ; len(b) >= 4; b = b[4:] {
		r = fourBytes(r ^ binary.LittleEndian.Uint32(b))
	}
	for _, v := range b {
		r = byBytes[0][byte(r)^v] ^ r>>8
	}
	return r
}

// byNibble is the table of a CRC that takes four bits at a time, and so what
// multiplication by x^4 carries back.
var byNibble = [16]uint32{
	0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
	0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c,
}
