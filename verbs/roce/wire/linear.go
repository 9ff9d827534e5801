package wire

import "math/bits"

// A CRC is linear: when one packet differs from another in some bits, their CRCs
// differ by a value that only these bits and their place decide. As polynomials
// over GF(2), bits m at a place that k bytes follow make a difference of
// m·x^(8k+32) modulo the CRC's polynomial. So from a difference the
// identification that makes it is m = difference·x^-(8k+32), where one exists:
// a value of 16 bits.
//
// A polynomial of degree 31 or less is kept as the CRC is: bit 31 is the
// coefficient of x^0, bit 0 that of x^31.

const (
	// polynomial is the CRC's without x^32.
	polynomial = 0xedb88320
	// one is the polynomial 1.
	one = 1 << 31
	// behindID is how many bytes there are from the end of IPv4's identification
	// to the BTH.
	behindID = ipv4Len - 6 + udpLen
)

// multiply multiplies two polynomials modulo the CRC's.
func multiply(a, b uint32) (product uint32) {
	for ; a != 0; a <<= 1 {
		product ^= b & -(a >> 31)
		b = b>>1 ^ polynomial&-(b&1)
	}
	return product
}

// divide divides a polynomial by x, modulo the CRC's.
func divide(a uint32) uint32 {
	carry := a >> 31
	return (a^polynomial&-carry)<<1 | carry
}

// undoing is x^-(8k+32) for a packet of so many bytes from BTH to ICRC, where k
// is how many of those that the CRC covers follow the identification. The ICRC's
// own 4 bytes, which k does not count, are the 32.
func undoing(packet int) uint32 {
	factor := uint32(one)
	power := uint32(one)
	for range 8 {
		power = divide(power)
	}
	for k := uint(behindID + packet); k != 0; k >>= 1 { //nolint:gosec // sizes
		if k&1 != 0 {
			factor = multiply(factor, power)
		}
		power = multiply(power, power)
	}
	return factor
}

// undoCache keeps the factors of the last few packet lengths. A transfer has one
// that is frequent, that of its full packets.
type undoCache struct {
	packet [4]int
	factor [4]uint32
	next   uint8
}

func (c *undoCache) of(packet int) uint32 {
	for i, n := range c.packet {
		if n == packet {
			return c.factor[i]
		}
	}
	f := undoing(packet)
	c.packet[c.next], c.factor[c.next] = packet, f
	c.next = (c.next + 1) % uint8(len(c.packet))
	return f
}

// identification is what a difference of CRCs says the identification is, where
// it is what some identification other than 0 makes.
func (c *undoCache) identification(difference uint32, packet int) (id uint16, ok bool) {
	m := multiply(difference, c.of(packet))
	if m&0xffff != 0 {
		return 0, false
	}
	// Coefficient x^15 is the lowest bit of the first byte, x^0 the highest of
	// the second.
	return bits.ReverseBytes16(uint16(m >> 16)), true
}
